"""A flow that changes records in, a refusal of what it cannot mean, or whether it can be redone, out. Nothing is read.
"""

from __future__ import annotations

from typing import Tuple

from pyspark.sql import SparkSession

from mirror_lib.changes.changed import changed, no_rows
from mirror_lib.changes.determinism import is_deterministic
from mirror_lib.changes.remote_names import names_of
from mirror_lib.config.model import ReplicationFlow


def check_change(spark: SparkSession, flow: ReplicationFlow) -> Tuple[bool, str]:
    """Whether the flow makes the same of the same records each time, and else why not; yes for one that changes none.

    Raises ConfigError, with the line, where its change cannot be made as it is written.
    """
    if flow.change is None:
        return True, ""
    return is_deterministic(changed(no_rows(spark), flow.change, names_of(flow, ())), flow.change.deterministic)

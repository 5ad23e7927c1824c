"""A flow that changes records in, a refusal of what it cannot mean, or whether it can be redone, out. Nothing is read.
"""

from __future__ import annotations

from typing import Optional, Tuple

from pyspark.sql import DataFrame, SparkSession

from mirror_lib.changes.catalyst import plan_nodes
from mirror_lib.changes.changed import changed, no_rows
from mirror_lib.changes.plan_shape import why_not_repeatable
from mirror_lib.changes.remote_names import names_of
from mirror_lib.config.model import ReplicationFlow


def is_deterministic(frame: DataFrame, declared: Optional[bool] = None) -> Tuple[bool, str]:
    """`(True, "")`, or `(False, reason)`: what was copied then cannot be told from what is copied again.

    `declared` is `transform.deterministic`: the user's word for functions that Spark cannot look into, or that there is
    something that it does not see.
    """
    reason = why_not_repeatable(plan_nodes(frame), trusted=declared is True)
    if reason is None and declared is False:
        reason = "transform.deterministic is false"
    return reason is None, reason or ""


def check_change(spark: SparkSession, flow: ReplicationFlow) -> Tuple[bool, str]:
    """Whether the flow makes the same of the same records each time, and else why not; yes for one that changes none.

    Raises ConfigError, with the line, where its change cannot be made as it is written.
    """
    if flow.change is None:
        return True, ""
    return is_deterministic(changed(no_rows(spark), flow.change, names_of(flow, ())), flow.change.deterministic)

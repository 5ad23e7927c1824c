"""Changed rows in, whether the same records come to the same ones each time, and else why not, out."""

from __future__ import annotations

from typing import Optional, Tuple

from pyspark.sql import DataFrame

from mirror_lib.changes.catalyst import plan_nodes
from mirror_lib.changes.plan_shape import why_not_repeatable


def is_deterministic(frame: DataFrame, declared: Optional[bool] = None) -> Tuple[bool, str]:
    """`(True, "")`, or `(False, reason)`: what was copied then cannot be told from what is copied again.

    `declared` is `transform.deterministic`: the user's word for functions that Spark cannot look into, or that there is
    something that it does not see.
    """
    reason = why_not_repeatable(plan_nodes(frame), trusted=declared is True)
    if reason is None and declared is False:
        reason = "transform.deterministic is false"
    return reason is None, reason or ""

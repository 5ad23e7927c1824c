"""A flow that changes records in, what it cannot mean, or whether it gives the same each time, out. Nothing is read."""

from __future__ import annotations

from typing import Optional, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.rows.catalyst import plan_nodes
from mirror_lib.rows.changed import changed, no_rows, placing
from mirror_lib.rows.plan_shape import why_not_repeatable
from mirror_lib.rows.remote_names import names_of


def check_change(spark: SparkSession, flow: ReplicationFlow) -> Tuple[bool, str]:
    """`(True, "")` where the flow makes the same of the same records each time, for all that Spark knows of its
    expressions, else `(False, reason)`: what was copied cannot be made again then, to compare it.

    Raises ConfigError, with the line, where its change cannot be made as it is written.
    """
    if flow.change is None:
        return True, ""
    reason = why_not_repeatable(plan_nodes(changed(no_rows(spark), flow.change, names_of(flow, ()))))
    return reason is None, reason or ""


def placement_fault(spark: SparkSession, flow: ReplicationFlow) -> Optional[str]:
    """Why a record might go to one remote partition at one time and to another the next time, one sentence; `None`
    where it cannot. Raises ConfigError as `check_change` does.

    What an interrupted attempt wrote is looked for in the partition that a record belongs to.
    """
    if flow.change is None:
        return None
    chosen = placing(no_rows(spark), flow.change)
    if chosen is None:
        return None
    nodes = plan_nodes(chosen)
    # Behind a function of the user's all that it does may count; else what stands in the select list alone does.
    reason = why_not_repeatable(nodes if flow.change.transform is not None else nodes[:1])
    return None if reason is None else f"its partitioner is not deterministic: {reason}"

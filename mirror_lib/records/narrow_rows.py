"""A change and the partitions of a pass in, the columns of changed rows that a task can do without out. Pure.

Each column costs Spark time for each row on its way to Python, a column of text most.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

import pyarrow as pa

from mirror_lib.config.record_change import RecordChange
from mirror_lib.records.rows import REMOTE
from mirror_lib.replicate.lanes import PartitionTask

TOPIC, FAILURE = "source_topic", "failure"


def needless(change: RecordChange, tasks: Sequence[PartitionTask]) -> Tuple[str, ...]:
    """Columns of a flow that keeps partitions: REMOTE where each source partition of the pass has one remote partition,
    TOPIC where all have one topic, FAILURE where nothing can fail."""
    found: List[str] = []
    if change.dead_letter_topic is None and len({task.source for task in tasks}) == len(tasks):
        found += REMOTE
    # A function of the user's may change topics, and is then refused.
    if change.transform is None and len({task.topic for task in tasks}) == 1:
        found.append(TOPIC)
    if change.transform is None and change.where is None and change.select in (None, "*"):
        found.append(FAILURE)
    return tuple(found)


def widened(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Rows with TOPIC and FAILURE, where they came without."""
    told = dict(zip(rows.schema.names, rows.columns))
    told.setdefault(TOPIC, pa.repeat(topic, rows.num_rows))
    told.setdefault(FAILURE, pa.nulls(rows.num_rows, pa.string()))
    return pa.RecordBatch.from_arrays(list(told.values()), names=list(told))

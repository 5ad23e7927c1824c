"""Reduces rows of the tables, as pyarrow tables, to those that count: from millions to a few a partition. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Dict, List, Sequence, Tuple

from mirror_lib.ledger.records import PartitionKey
from mirror_lib.ledger.tables import PARTITION_KEY, partition_key

# What `last_positions` and `last_ranges` need of `offset_syncs`.
POSITION_COLUMNS = (
    *("source_topic_id", "remote_topic_id", "source_topic", "partition", "upstream_offset", "downstream_offset"),
    *("record_count", "committed_at", "remote_partition", "upstream_until"),
)
# What `last_moves` needs of `group_offsets`.
MOVE_COLUMNS = (
    *("cluster", "group", "topic", "partition", "action", "verdict", "at"),
    *("append_number", "previous_offset", "new_offset", "from_offset"),
)


def last_rows(table: Any, keys: Sequence[str], *order: str) -> Any:
    """The rows of each combination of `keys` that are last by the columns `order`."""
    for name in order:
        last = table.group_by(list(keys)).aggregate([(name, "max")])
        # With threads pyarrow 11 holds the GIL until its pool is done, and a read of a table in the pool wants the GIL.
        table = table.join(last, [*keys, name], [*keys, f"{name}_max"], join_type="inner", use_threads=False)
    return table


def last_positions(table: Any) -> Dict[PartitionKey, Tuple[int, int, Any]]:
    """The upstream and the downstream offset at which the copy of each partition resumes, and the row's commit time.
    `table` has the columns of `offset_syncs`.

    If several rows end at one downstream offset, the latest commit counts: a truncated source resumes from a lower
    offset.
    """
    import pyarrow.compute as pc

    plain = pc.and_(pc.is_null(table["remote_partition"]), pc.is_null(table["upstream_until"]))
    table = table.filter(plain)
    table = table.append_column("downstream", pc.add(table["downstream_offset"], table["record_count"]))
    table = table.append_column("upstream", pc.add(table["upstream_offset"], table["record_count"]))
    ends = table.select([*PARTITION_KEY, "downstream", "upstream", "committed_at"])
    last = last_rows(ends, PARTITION_KEY, "downstream", "committed_at", "upstream")
    found = last.to_pylist()
    return {partition_key(row): (row["upstream"], row["downstream"], row["committed_at"]) for row in found}


def last_moves(table: Any) -> List[Dict[str, Any]]:
    """The last offset commit and the last rollback of each cluster, group, topic and partition."""
    return list(last_rows(table, MOVE_COLUMNS[:5], "at", "append_number").select(MOVE_COLUMNS).to_pylist())


def last_commits(table: Any) -> List[Dict[str, Any]]:
    """`source_topic, remote_topic, remote_topic_id, committed_at` of each remote topic's last row."""
    keys = ["source_topic", "remote_topic", "remote_topic_id"]
    last = table.group_by(keys).aggregate([("committed_at", "max")])
    return [{**row, "committed_at": row["committed_at_max"]} for row in last.to_pylist()]


def records_since(table: Any, since: datetime) -> int:
    """The number of records in ledger rows committed since then. Compaction may have joined rows with older ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    moment = pa.scalar(since, table["committed_at"].type)
    return int(pc.sum(table.filter(pc.greater_equal(table["committed_at"], moment))["record_count"]).as_py() or 0)


def last_ranges(table: Any) -> Dict[Tuple[str, str, int], Tuple[int, Any]]:
    """By source topic id, source topic and partition of a flow that repartitions: the upstream offset at which the copy
    resumes, and the last row's commit time."""
    import pyarrow.compute as pc

    ranges = table.filter(pc.and_(pc.is_valid(table["upstream_until"]), pc.greater_equal(table["partition"], 0)))
    keys = ["source_topic_id", "source_topic", "partition"]
    last = ranges.group_by(keys).aggregate([("upstream_until", "max"), ("committed_at", "max")])
    return {
        (row[keys[0]], row[keys[1]], row[keys[2]]): (row["upstream_until_max"], row["committed_at_max"])
        for row in last.to_pylist()
    }

"""Computes the lag of groups in records and seconds, as lines and JSON of `mirror groups lag`. Pure.

The columns of Kafka's `kafka-consumer-groups --describe`, in its order; seconds of lag come last.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.facts import CommittedOffset, ConsumerGroup, GroupMember, TopicPartition
from mirror_lib.text import aligned

_HEADER = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
    *("CONSUMER-ID", "HOST", "CLIENT-ID", "LAG-SECONDS"),
)


@dataclass(frozen=True)
class GroupLag:
    """One group on one partition; `None` for what is unknown or does not exist.

    `lag` counts offsets, as Kafka's tool does; it is negative if the group is past the log's end. `lag_seconds` is the
    age of the next record that the group reads, 0.0 if it has read all. `only_markers`: the lag has transaction markers
    only, so there is no record to read.
    """

    group: str
    topic: str
    partition: int
    current_offset: Optional[int]
    log_end_offset: Optional[int]
    lag: Optional[int]
    consumer_id: Optional[str]
    host: Optional[str]
    client_id: Optional[str]
    lag_seconds: Optional[float]
    only_markers: bool = False


def group_lags(
    groups: Mapping[str, ConsumerGroup],
    committed: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    log_ends: Mapping[TopicPartition, int],
    timestamps: Mapping[str, Mapping[TopicPartition, int]],
    now_ms: int,
    topics: Optional[Collection[str]] = None,
    without: Mapping[str, Collection[TopicPartition]] = MappingProxyType({}),
) -> Sequence[GroupLag]:
    """A row for each partition that a group of `groups` committed or is assigned; by group, topic, partition.

    `timestamps`: for each group the timestamp in ms of the record that it reads next, where there is one and it is
    known. `without`: for each group the partitions that hold no record for it to read. Only `topics` if they are given.
    A group that `groups` lacks but `committed` has gets rows without a member.
    """
    rows: List[GroupLag] = []
    for group in sorted({*groups, *committed}):
        offsets = committed.get(group, {})
        members = _member_of(groups.get(group))
        for partition in sorted({*offsets, *members}):
            if topics is None or partition[0] in topics:
                next_ms = timestamps.get(group, {}).get(partition)
                end = log_ends.get(partition)
                row = _row(group, partition, offsets.get(partition), end, members.get(partition), next_ms, now_ms)
                has_read_all = bool(row.lag and row.lag > 0 and partition in without.get(group, ()))
                rows.append(replace(row, lag_seconds=0.0, only_markers=True) if has_read_all else row)
    return rows


def unread(
    committed: Mapping[TopicPartition, CommittedOffset], log_ends: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """The offsets whose timestamps `group_lags` needs: the next record of each group that has records left to read."""
    return {
        partition: at.offset for partition, at in committed.items() if at.offset < log_ends.get(partition, at.offset)
    }


def lag_lines(rows: Sequence[GroupLag]) -> List[str]:
    """A header and one line for each row, `-` for what is unknown. Lag in whole seconds. The last column has remarks,
    if a row has one."""
    table = [_HEADER, *(_cells(row) for row in rows)]
    remarks = [f"only markers after offset {row.current_offset}" if row.only_markers else "" for row in rows]
    if any(remarks):
        table = [(*cells, remark) for cells, remark in zip(table, ["REMARK", *remarks])]
    return aligned(table, right=(2, 3, 4, 5, 9))


def lag_json(row: GroupLag) -> Dict[str, object]:
    """One row as a JSON document, null for what is unknown."""
    return asdict(row)


def _member_of(group: Optional[ConsumerGroup]) -> Mapping[TopicPartition, GroupMember]:
    if group is None:
        return {}
    return {partition: member for member in group.members for partition in member.partitions}


def _row(
    group: str,
    partition: TopicPartition,
    committed: Optional[CommittedOffset],
    log_end: Optional[int],
    member: Optional[GroupMember],
    next_ms: Optional[int],
    now_ms: int,
) -> GroupLag:
    current = None if committed is None else committed.offset
    lag = None if current is None or log_end is None else log_end - current
    return GroupLag(
        group,
        *partition,
        current,
        log_end,
        lag,
        consumer_id=None if member is None else member.member_id,
        host=None if member is None else member.host,
        client_id=None if member is None else member.client_id,
        lag_seconds=_seconds(lag, next_ms, now_ms),
    )


def _seconds(lag: Optional[int], next_ms: Optional[int], now_ms: int) -> Optional[float]:
    if lag is not None and lag <= 0:
        return 0.0
    # A record without a timestamp has -1. Clocks differ: a record of the future is no negative lag.
    return None if lag is None or next_ms is None or next_ms < 0 else max(0, now_ms - next_ms) / 1000


def _cells(row: GroupLag) -> Tuple[str, ...]:
    values = (
        *(row.group, row.topic, row.partition, row.current_offset, row.log_end_offset, row.lag),
        *(row.consumer_id, row.host, row.client_id),
        None if row.lag_seconds is None else round(row.lag_seconds),
    )
    return tuple("-" if value is None else str(value) for value in values)

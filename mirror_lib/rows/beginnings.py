"""Decides where the source partitions of a flow that places records anew go on, by its ledger and both logs. Pure."""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Sequence

from mirror_lib.errors import RefusedError
from mirror_lib.facts import OffsetRange, TopicPartition
from mirror_lib.ledger.records import RangePositions, Stand
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.loss import left_the_log
from mirror_lib.replication.starts import Start


def beginnings(
    stands: Mapping[TopicPartition, Stand],
    partitions: Mapping[TopicPartition, CopiedPartition],
    logs: Mapping[TopicPartition, OffsetRange],
    starts: Mapping[TopicPartition, Start],
    latest: bool,
) -> Dict[TopicPartition, int]:
    """The upstream offset at which each partition of `logs` goes on. `stands` are those of the ledger.

    One that was never copied begins where `starts` says, else at its log's start, or with `latest` at its end. Raises
    `RefusedError` where the source lost what is to come next, or its topic is another one by now.
    """
    found: Dict[TopicPartition, int] = {}
    for source, log in logs.items():
        name, stand = f"{source[0]}-{source[1]}", stands.get(source)
        if stand is not None and stand.topic_id != partitions[source].source_topic_id:
            raise RefusedError(
                f"{source[0]} was deleted and created again on the source",
                "copy the new topic by a file of its own, with another `name`, `state` and remote topic",
            )
        at = stand.offset if stand is not None else _first(starts.get(source), log, latest)
        if at < log.log_start:
            reason = left_the_log(source, at, log.log_start)
            raise RefusedError(reason, "such a flow does not go on behind lost records")
        if at > log.end:
            ends = f"the source's log ends at {log.end}"
            raise RefusedError(f"{name}: {ends}, before offset {at}, where the copy goes on")
        found[source] = at
    return found


def _first(start: Optional[Start], log: OffsetRange, latest: bool) -> int:
    if start is None:
        return log.end if latest else log.log_start
    if start.recreated:
        return log.log_start
    return log.end if start.upstream_offset < 0 else start.upstream_offset


def refuse_new_remote_topics(known: RangePositions, partitions: Sequence[CopiedPartition]) -> None:
    """Raise RefusedError for a remote topic that would lack what was copied of its source before."""
    begun = {topic for topic, _ in known.sources}
    before = {(pair.topic, pair.remote_topic) for pair in known.pairs}
    for each in partitions:
        if each.topic in begun and (each.topic, each.remote_topic) not in before:
            raise RefusedError(
                f"{each.remote_topic} is a new remote topic of {each.topic}, and would lack what was copied before",
                "copy it by a file of its own, with another `name` and `state`, which begins at the start",
            )

"""Reads both clusters and the ledger for where a run would start each partition, or stop it. Changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.event_lines import event_words, events
from mirror_lib.facts import Cluster, OffsetRange
from mirror_lib.ledger.records import STARTED_LATER, Incident, PartitionKey, Position
from mirror_lib.ledger.table_reader import POSITION_COLUMNS, TableReader, last_positions, named_folder
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.copy_ranges import Range, SourceCluster, Starts, first_range
from mirror_lib.text import counted
from mirror_lib.topics.plan import CopiedTopic


def with_starts(
    flow: ReplicationFlow,
    topics: Sequence[CopiedTopic],
    source: SourceCluster,
    target: Cluster,
    reader: TableReader,
    state: str,
) -> Tuple[CopiedTopic, ...]:
    """The topics, with a note where a run would start the copy after offsets that the source holds now. Raises
    `RefusedError` if a run would stop a partition at its start. Both are by the rules of `first_range`.

    What a comparison of both logs shows is known to the run alone. Raises `ClusterError`, and `StateError` if the
    ledger cannot be read.
    """
    there = target.topics()
    partitions = [
        CopiedPartition(each.source.name, each.remote_topic, number, each.source.topic_id, each.remote_topic_id, 0)
        for each in topics
        for number in range(each.partitions)
    ]
    known = _positions(reader, flow)
    unknown = [each for each in partitions if each.key not in known.get(each.topic, {})]
    starts = Starts(flow, source).of(unknown)
    sources = source.offsets([each.source for each in partitions], flow.isolation_level)
    remotes = {(name, number) for name, topic in there.items() for number in range(topic.partitions)}
    targets = target.offsets([each.remote for each in partitions if each.remote in remotes], "read_uncommitted")
    refused: List[Range] = []
    incidents: List[Incident] = []
    for each in partitions:
        log = targets.get(each.remote) if each.remote in remotes else OffsetRange(0, 0)
        if each.source in sources and log is not None:
            ends = sources[each.source], log, starts.get(each.source)
            rows, place = known.get(each.topic, {}), named_folder(state)
            found = first_range(flow, each.key, rows, *ends, remote_topic=each.remote_topic, state=place)
            refused += [found] if found.refused is not None else []
            incidents += [found.incident] if found.incident is not None else []
    if refused:
        others = f" ({counted(len(refused) - 1, 'more partition')})" if len(refused) > 1 else ""
        raise RefusedError(f"{flow.name}: {refused[0].refused}{others}", code=refused[0].code)
    notes = {rows[0].topic: event_words(rows) for rows in events(incidents) if rows[0].kind == STARTED_LATER}
    return tuple(
        replace(each, notes=(*each.notes, notes[each.source.name])) if each.source.name in notes else each
        for each in topics
    )


def _positions(reader: TableReader, flow: ReplicationFlow) -> Mapping[str, Mapping[PartitionKey, Position]]:
    by_topic: Dict[str, Dict[PartitionKey, Position]] = {}
    table = reader.arrow("offset_syncs", POSITION_COLUMNS, flow.name)
    for key, (upstream, downstream, _) in ({} if table is None else last_positions(table)).items():
        by_topic.setdefault(key[2], {})[PartitionKey(*key)] = Position(upstream, downstream)
    return by_topic

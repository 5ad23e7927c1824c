"""`mirror retention raise|restore`: the source keeps records until they are copied."""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Optional, Sequence

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import copied_flows, print_json, print_lines
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, ClusterError, ConfigError
from mirror_lib.facts import TopicConfigs, readable, unreadable
from mirror_lib.text import DAY, aligned

if TYPE_CHECKING:
    from mirror_lib.control.source_retention import Raised, Refused, RetentionChange
    from mirror_lib.kafka.admin import KafkaCluster
    from mirror_lib.ledger.source_retentions import SourceRetentionTable


def add(commands: Commands) -> None:
    """`mirror retention` and its two commands."""
    text = "raise retention.ms of source topics until their records are copied, and restore it"
    own = commands.add_parser("retention", help=text, description=text)
    both = own.add_subparsers(metavar="COMMAND", required=True)
    higher = add_command(both, "raise", raise_command, "raise retention.ms of source topics that have a lag")
    higher.add_argument("--days", type=float, required=True, metavar="N", help="the new retention")
    back = add_command(both, "restore", restore_command, "restore retention.ms of source topics without a lag")
    for command in (higher, back):
        command.add_argument(
            "--execute", action="store_true", help="change the topics; without it the changes are only shown"
        )


def raise_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror retention raise`: show or make it. 1 where a broker refused a change."""
    from mirror_lib.control.source_retention import raise_retention, raises

    if not arguments.days > 0:
        raise ConfigError(f"--days {arguments.days:g} is not more than 0")

    def changes(flow: ReplicationFlow, source: KafkaCluster, raised: Raised) -> List[RetentionChange]:
        lagging = sorted(topic for topic, lag in _lags(config, flow, source).items() if lag != 0)
        return raises(_configs(source, lagging), round(arguments.days * DAY * 1000), raised)

    return _all(arguments, config, changes, raise_retention)


def restore_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror retention restore`: show or make it. 1 where a broker refused a change, or a topic stays raised."""
    from mirror_lib.control.source_retention import restore_retention, restores

    def changes(flow: ReplicationFlow, source: KafkaCluster, raised: Raised) -> List[RetentionChange]:
        return restores(_configs(source, sorted(raised)), _lags(config, flow, source), raised)

    return _all(arguments, config, changes, restore_retention)


Changes = Callable[[ReplicationFlow, "KafkaCluster", "Raised"], List["RetentionChange"]]
Make = Callable[[str, Sequence["RetentionChange"], "KafkaCluster", "SourceRetentionTable"], "Refused"]


def _all(arguments: argparse.Namespace, config: MirrorConfig, changes: Changes, make: Make) -> int:
    from mirror_lib.control.source_retention import COLUMNS, raised_of
    from mirror_lib.kafka.admin import KafkaCluster
    from mirror_lib.ledger.source_retentions import SOURCE_RETENTIONS, SourceRetentionTable
    from mirror_lib.ledger.table_reader import TableReader
    from mirror_lib.spark.session import running_session

    left, reader = False, TableReader(config.state)
    # Only a row to add needs Spark.
    with running_session("mirror retention") if arguments.execute else nullcontext() as spark:
        for flow in copied_flows(arguments, config):
            with KafkaCluster(flow.source, flow.admin_timeout) as source:
                found = changes(flow, source, raised_of(reader.rows(SOURCE_RETENTIONS.name, COLUMNS, flow.name)))
                table = None if spark is None else SourceRetentionTable(spark, config.state)
                refused = make(flow.name, found, source, table) if found and table is not None else {}
            left = left or bool(refused) or any(each.row.action == "raise" and each.kept for each in found)
            _show(arguments, flow, found, refused)
    return EXIT_FAILED if left else EXIT_OK


def _configs(source: KafkaCluster, topics: Sequence[str]) -> Mapping[str, TopicConfigs]:
    from mirror_lib.control.source_retention import CONFIGS

    configs = source.topic_configs(topics, CONFIGS)
    closed = unreadable(source.alias, configs)
    if closed is not None:
        raise ClusterError(closed, code="MIR-203")
    return readable(configs)


def _lags(config: MirrorConfig, flow: ReplicationFlow, source: KafkaCluster) -> Mapping[str, Optional[int]]:
    """By topic of the source, how many offsets are not copied, by the ledger; `None` if a partition has no leader."""
    from mirror_lib.kafka.admin import KafkaCluster
    from mirror_lib.ledger.table_reader import TableReader
    from mirror_lib.status.read import partitions_of
    from mirror_lib.topics.remote_topics import plan_flow

    with KafkaCluster(flow.target, flow.admin_timeout) as target:
        plan = plan_flow(flow, source, target, config.flows)
    seen: Dict[str, List[int]] = {}
    for each in partitions_of(flow, plan, source, TableReader(config.state), time.time()):
        seen.setdefault(each.topic, []).append(each.lag)
    sizes = {each.source.name: each.partitions for each in plan.copied}
    return {topic: sum(seen[topic]) if len(seen.get(topic, ())) == size else None for topic, size in sizes.items()}


def _show(
    arguments: argparse.Namespace, flow: ReplicationFlow, found: Sequence[RetentionChange], refused: Refused
) -> None:
    outcomes = {each.topic: _outcome(arguments.execute, each, refused) for each in found}
    if arguments.json:
        topics = [dict(topic=each.topic, now=each.now, to=each.to, outcome=outcomes[each.topic]) for each in found]
        print_json({"flow": flow.name, "config": "retention.ms", "topics": topics})
        return
    rows = [(each.topic, _value(each.now), _value(each.to), outcomes[each.topic]) for each in found]
    table = aligned([("SOURCE TOPIC", "RETENTION.MS", "TO", "OUTCOME"), *rows], right={1, 2}) if rows else []
    print_lines([flow.name, *table, *([] if rows else ["nothing to change"])])
    if rows and not arguments.execute:
        print_lines(["nothing was changed: --execute changes these topics of the source"])


def _outcome(executed: bool, change: RetentionChange, refused: Refused) -> str:
    if change.kept:
        return f"left: {change.kept}"
    if change.topic in refused:
        return f"refused: {refused[change.topic]}"
    return "changed" if executed else "would be changed"


def _value(value: object) -> str:
    return "(default)" if value is None else str(value)

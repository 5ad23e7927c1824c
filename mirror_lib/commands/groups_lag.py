"""`mirror groups lag`: how far each group is, in records and in seconds."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, List, NamedTuple, Sequence

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import named_cluster, print_error, print_json, print_lines
from mirror_lib.config.model import ClusterConfig, MirrorConfig
from mirror_lib.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from mirror_lib.groups.lag import GroupLag


def add(groups: Commands) -> None:
    """`mirror groups lag` and its options."""
    lag = add_command(
        groups, "lag", groups_lag_command, "show the lag of each group in records and seconds", flow=False
    )
    lag.add_argument("--cluster", metavar="ALIAS", help="only this cluster")
    lag.add_argument("--group", metavar="GROUP", help="only this group")
    lag.add_argument("--topic", metavar="TOPIC", help="only this topic")


def groups_lag_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror groups lag`: the facts of Kafka's own tool, and the lag in seconds, for one cluster or all. 1 if a group
    did not tell where it stands."""
    aliases = {cluster.alias: cluster for flow in config.flows for cluster in (flow.source, flow.target)}
    failed = 0
    for alias in aliases if arguments.cluster is None else [arguments.cluster]:
        found = _found(arguments, named_cluster(config, alias))
        _show(arguments, alias, found)
        failed += len(found.unreadable)
    return EXIT_FAILED if failed else EXIT_OK


class _Found(NamedTuple):
    """The rows of a cluster, and a sentence on each group whose offsets are unknown."""

    rows: Sequence[GroupLag]
    unreadable: Sequence[str]


def _found(arguments: argparse.Namespace, settings: ClusterConfig) -> _Found:
    from mirror_lib.groups.lag import group_lags, unread
    from mirror_lib.kafka.admin import KafkaCluster
    from mirror_lib.kafka.offsets import first_records

    with KafkaCluster(settings) as cluster:
        names = [name for name in cluster.group_names() if arguments.group in (None, name)]
        unlisted = cluster.unlisted_brokers()
        groups, committed = cluster.describe_groups(names), cluster.committed_offsets(names)
        wanted = {at for offsets in committed.values() for at in offsets}
        wanted |= {at for group in groups.values() for member in group.members for at in member.partitions}
        ends = {at: log.end for at, log in cluster.offsets(sorted(wanted), "read_uncommitted").items()}
    records = {name: first_records(settings, unread(offsets, ends)) for name, offsets in committed.items()}
    times = {name: found.times for name, found in records.items()}
    without = {name: found.without for name, found in records.items()}
    topics = None if arguments.topic is None else [arguments.topic]
    rows = group_lags(groups, committed, ends, times, round(time.time() * 1000), topics, without)
    return _Found(rows, _unreadable([name for name in names if name not in committed], unlisted))


def _unreadable(groups: Sequence[str], brokers: Sequence[str]) -> List[str]:
    silent = [f"group {group}: its coordinator does not answer with committed offsets" for group in groups]
    return [*silent, *(f"broker {each} does not list its groups" for each in brokers)]


def _show(arguments: argparse.Namespace, alias: str, found: _Found) -> None:
    from mirror_lib.groups.lag import lag_json, lag_lines

    if arguments.json:
        print_json({"cluster": alias, "groups": [lag_json(row) for row in found.rows]})
    elif found.rows:
        print_lines([alias, *lag_lines(found.rows)])
    elif not found.unreadable:
        asked = "" if arguments.group is None else f" {arguments.group}"
        where = "" if arguments.topic is None else f" on {arguments.topic}"
        print_lines([f"{alias}: no consumer group{asked} has offsets{where}"])
    for sentence in found.unreadable:
        print_error(f"{alias}: {sentence}")

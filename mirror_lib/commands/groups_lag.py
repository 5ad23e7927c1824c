"""`mirror groups lag`: how far each group is, in records and in seconds."""

from __future__ import annotations

import argparse
import time

from mirror_lib.commands.output import named_cluster, print_json, print_lines
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_OK


def groups_lag_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror groups lag`: the facts of Kafka's own tool, and the lag in seconds, for one cluster or all."""
    from mirror_lib.cluster import KafkaCluster
    from mirror_lib.cluster.timestamps import timestamps_at
    from mirror_lib.translate.lag import group_lags, lag_json, lag_lines, unread

    aliases = {cluster.alias: cluster for flow in config.flows for cluster in (flow.source, flow.target)}
    for alias in aliases if arguments.cluster is None else [arguments.cluster]:
        settings = named_cluster(config, alias)
        with KafkaCluster(settings) as cluster:
            names = [name for name in cluster.group_names() if arguments.group in (None, name)]
            groups, committed = cluster.describe_groups(names), cluster.committed_offsets(names)
            wanted = {at for offsets in committed.values() for at in offsets}
            wanted |= {at for group in groups.values() for member in group.members for at in member.partitions}
            ends = {at: log.end for at, log in cluster.offsets(sorted(wanted), "read_uncommitted").items()}
        times = {name: timestamps_at(settings, unread(offsets, ends)) for name, offsets in committed.items()}
        topics = None if arguments.topic is None else [arguments.topic]
        rows = group_lags(groups, committed, ends, times, round(time.time() * 1000), topics)
        if arguments.json:
            print_json({"cluster": alias, "groups": [lag_json(row) for row in rows]})
        else:
            asked = "" if arguments.group is None else f" {arguments.group}"
            where = "" if arguments.topic is None else f" on {arguments.topic}"
            nothing = f"{alias}: no consumer group{asked} has offsets{where}"
            print_lines([alias, *lag_lines(rows)] if rows else [nothing])
    return EXIT_OK

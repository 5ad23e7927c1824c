"""`mirror explain`: which rule decides about a topic or a group, in each flow of the file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Optional

from mirror_lib.commands.arguments import EXIT_CODES, Commands, add_command
from mirror_lib.commands.output import chosen_flows, columns, print_json, print_lines, print_warning
from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_OK, ClusterError, ConfigError

if TYPE_CHECKING:
    from mirror_lib.plan.explain import Explanation
    from mirror_lib.topics.plan import TopicFacts


def add(commands: Commands) -> None:
    """`mirror explain` and its options."""
    text = "name the rule that decides about a topic or a consumer group"
    explain = add_command(commands, "explain", explain_command, text, read=read_explained)
    explain.usage = "mirror explain [OPTIONS] CONFIG ... (TOPIC | --group GROUP)"
    explain.epilog = f"TOPIC is the last argument: a source topic, which need not exist.\n\n{EXIT_CODES}"
    explain.add_argument("--group", metavar="GROUP", help="explain a consumer group instead of a topic")


def read_explained(arguments: argparse.Namespace) -> MirrorConfig:
    """The configuration of `mirror explain`: the last word is the topic, unless a group is asked about.

    Raises ConfigError where there is neither.
    """
    files = arguments.config if _topic(arguments) is None else arguments.config[:-1]
    if not files:
        raise ConfigError("say what to explain: a topic after the file, or --group GROUP")
    return load(files)


def explain_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror explain`: read both clusters and print; nothing is changed, and 0 whatever the verdict is."""
    from mirror_lib.plan.explain import explain_topic, explanation_json, explanation_lines

    topic = _topic(arguments)
    for flow in chosen_flows(arguments, config):
        if topic is not None:
            found = explain_topic(topic, flow, _topic_facts(flow, config), config.flows)
        else:
            found = _group(arguments.group, flow, config)
        if arguments.json:
            print_json(explanation_json(found))
        else:
            print_lines(explanation_lines(found, columns()))
    return EXIT_OK


def _topic(arguments: argparse.Namespace) -> Optional[str]:
    return None if arguments.group is not None else str(arguments.config[-1])


def _topic_facts(flow: ReplicationFlow, config: MirrorConfig) -> Optional[TopicFacts]:
    from mirror_lib.kafka.admin import clusters_of
    from mirror_lib.topics.remote_topics import read_facts

    try:
        with clusters_of(flow) as (source, target):
            return read_facts(flow, source, target, config.flows)
    except ClusterError as error:
        print_warning(f"explained by names alone: {error}")
        return None


def _group(group: str, flow: ReplicationFlow, config: MirrorConfig) -> Explanation:
    from mirror_lib.kafka.admin import clusters_of
    from mirror_lib.plan.explain import explain_group
    from mirror_lib.plan.preview import GroupFacts, existing_groups
    from mirror_lib.topics.remote_topics import plan_flow

    with clusters_of(flow) as (source, target):
        plan = plan_flow(flow, source, target, config.flows)
        here, there = existing_groups(source, [group]), existing_groups(target, [group])
        facts = GroupFacts(
            names=[group],
            committed=source.committed_offsets(here),
            selected={each.source.name: each.remote_topic for each in plan.copied},
            there=target.describe_groups(there),
            there_committed=target.committed_offsets(there),
        )
    return explain_group(group, flow, facts, {each.name: each.reason for each in plan.skipped}, exists=bool(here))

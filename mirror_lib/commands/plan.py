"""`mirror plan`: what a run would change, as a diff, and why the rest stays or is left out; or which rule decides about
one topic or group."""

from __future__ import annotations

import argparse
import logging
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, FrozenSet, Mapping, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import chosen_flows, columns, print_error, print_json, print_lines
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import ConfigError, MirrorError, RefusedError, StateError, cause_of, worst
from mirror_lib.facts import AclBinding
from mirror_lib.transactions import open_transactions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.kafka.admin import KafkaCluster
    from mirror_lib.plan.deciding import Decided
    from mirror_lib.plan.preview import EnginePlan, FlowPreview
    from mirror_lib.takeover.other_writer import OtherWriter

log = logging.getLogger(__name__)


def add(commands: Commands) -> None:
    plan = add_command(commands, "plan", plan_command, "show as a diff what a run would change, and change nothing")
    text = "also list what stays as it is, every skipped topic, and keys without effect"
    plan.add_argument("--all", action="store_true", help=text)
    one = plan.add_mutually_exclusive_group()
    one.add_argument("--topic", metavar="TOPIC", help="print only which rule decides about this topic of the source")
    one.add_argument("--group", metavar="GROUP", help="print only which rule decides about this consumer group")


def plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    from mirror_lib.ledger.table_reader import local_refusal
    from mirror_lib.plan.render import preview_json, preview_lines

    flows, codes = chosen_flows(arguments, config), []
    unwritable = local_refusal(config.state, os.environ)
    known = _spark_knows(config, flows) if unwritable is None else {}
    for flow in flows:
        found = _preview(config, flow, known.get(flow.name, _Known()))
        found = replace(found, refusal=found.refusal or unwritable)
        decided = _decided(arguments, config, found)
        if arguments.json:
            print_json(preview_json(found) if decided is None else decided.document())
        else:
            print_lines(preview_lines(found, arguments.all, columns()) if decided is None else [decided.line()])
        if found.refusal is not None:
            print_error(found.refusal)
        codes.append(found.exit_code)
    return worst(codes)


def _decided(arguments: argparse.Namespace, config: MirrorConfig, found: FlowPreview) -> Optional[Decided]:
    from mirror_lib.plan.deciding import decided_group, decided_topic

    if arguments.topic is not None:
        return decided_topic(found, arguments.topic, config.flows)
    return None if arguments.group is None else decided_group(found, arguments.group)


def _preview(config: MirrorConfig, flow: ReplicationFlow, known: _Known) -> FlowPreview:
    """Read both clusters. An unexpected error of a library is raised as a MirrorError."""
    from mirror_lib.kafka.admin import clusters_of
    from mirror_lib.plan.preview import preview
    from mirror_lib.topics.old_brokers import settled

    try:
        with clusters_of(flow) as (source, target):
            delivery = settled(flow, target.missing_for_fence())
            found = preview(delivery.flow, source, target, config, *known)
            retention = _retention(config, found, source)
            waiting = open_transactions(flow, source, found.topics.sources())
            other = _other_writer(config, found.flow, source, target)
            found, recorded = _with_state(config, found, source, target, other)
    except MirrorError:
        raise
    except Exception as error:
        log.debug("%s: plan failed", flow.name, exc_info=error)
        what = f"{flow.name}: the plan failed: {type(error).__name__}: {cause_of(error)}"
        raise MirrorError(what, "nothing was changed; set MIRROR_LOG=debug to get the trace") from error
    sentences = tuple(each.sentence(time.time()) for each in waiting)
    refusal = delivery.refusal or recorded
    warning = "; ".join(filter(None, [delivery.warning, "" if refusal else other.warning(flow.name)]))
    return replace(found, warning=warning, refusal=refusal, retention=retention, waiting=sentences)


def _other_writer(
    config: MirrorConfig, flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster
) -> OtherWriter:
    """What a run would find of another replication tool; nothing where the ledger cannot be read without Spark."""
    from mirror_lib.takeover.other_writer import OtherWriter
    from mirror_lib.takeover.signs import other_writer_by_tables

    try:
        return other_writer_by_tables(config, flow, source, target) if flow.copied else OtherWriter()
    except (ConfigError, StateError) as error:
        log.info("%s: whether another tool still writes is not checked: %s", flow.name, error)
        return OtherWriter()


def _retention(config: MirrorConfig, found: FlowPreview, source: KafkaCluster) -> Tuple[str, ...]:
    """Sentences where the source may delete records before they are copied; empty where it does not, and where the
    ledger cannot be read without Spark."""
    from mirror_lib.ledger.table_reader import TableReader
    from mirror_lib.status.facts import retention_problems, unsized
    from mirror_lib.status.read import partitions_of

    try:
        reader = TableReader(config.state)
        partitions = partitions_of(found.flow, found.topics, source, reader, time.time())
    except (ConfigError, StateError) as error:
        log.info("%s: retention is not compared with the copy: %s", found.flow.name, error)
        return ()
    sentences = [f"{each.what}; {each.remedy}" for each in retention_problems(partitions)]
    unknown = unsized(partitions)
    return (*sentences, *([f"{unknown}; grant Describe on the cluster {source.alias}"] if unknown else []))


def _with_state(
    config: MirrorConfig, found: FlowPreview, source: KafkaCluster, target: KafkaCluster, other: OtherWriter
) -> Tuple[FlowPreview, Optional[RefusedError]]:
    """The plan with the starts of its topics, and why a run would be refused, by the tables `runs` and `offset_syncs`:
    another cluster, another partitioning mode, another tool that still writes, or a partition whose start is not
    proven. `found` and `None` where the tables cannot be read without Spark."""
    from mirror_lib.ledger.records import TopicPair, same_clusters
    from mirror_lib.ledger.table_reader import TableReader
    from mirror_lib.plan.starts import with_starts
    from mirror_lib.replication.copy_ranges import refuse_other_mode

    flow = found.flow
    try:
        reader = TableReader(config.state)
        clusters = (source.cluster_id(), target.cluster_id())
        same_clusters(flow.name, clusters, reader.last_clusters(flow.name))
        pairs = [
            TopicPair(each.source.name, each.source.topic_id, each.remote_topic, each.remote_topic_id)
            for each in found.topics.copied
            if each.create is None
        ]
        refuse_other_mode(flow, pairs, *reader.copied(flow.name))
        still_writes = other.refusal(flow.name)
        if still_writes is not None:
            raise still_writes
        if not flow.repartitions:
            copied = with_starts(flow, found.topics.copied, source, target, reader, config.state)
            found = replace(found, topics=replace(found.topics, copied=copied))
    except RefusedError as error:
        return found, error
    except (ConfigError, StateError) as error:
        log.info("%s: the plan is not compared with the state: %s", flow.name, error)
    return found, None


class _Known(NamedTuple):
    """Of a flow: the ACLs that it created and may delete, and how what changes records is copied."""

    made_acls: FrozenSet[AclBinding] = frozenset()
    engine: Optional[EnginePlan] = None


def _spark_knows(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> Mapping[str, _Known]:
    """What only the state shows of each flow, or Spark itself, which is started for the flows that need it.

    Raises ConfigError where a change cannot be made, StateError where the state cannot be read.
    """
    asking = [flow for flow in flows if _deletes(flow) or flow.change is not None]
    if not asking:
        return {}
    from mirror_lib.spark.session import running_session

    with running_session("mirror plan") as spark:
        return {flow.name: _known(config, flow, spark) for flow in asking}


def _known(config: MirrorConfig, flow: ReplicationFlow, spark: SparkSession) -> _Known:
    from mirror_lib.ledger.topic_acls import TopicAclTable
    from mirror_lib.plan.preview import engine_plan
    from mirror_lib.rows.flow import why_not_repartitioned
    from mirror_lib.rows.transform import check_change, placement_fault

    made = TopicAclTable(spark, config.state).made(flow.name) if _deletes(flow) else frozenset()
    if flow.change is None:
        return _Known(made)
    check_change(spark, flow)
    return _Known(made, engine_plan(flow, why_not_repartitioned(flow) or placement_fault(spark, flow)))


def _deletes(flow: ReplicationFlow) -> bool:
    return flow.sync_topic_acls_delete and flow.sync_topic_acls_interval is not None

"""Looks at clusters, flows, Spark and the state folder, one check after the other. Changes nothing.

Topics that a run would create are validated by the brokers and not created. Asked for the coordinator of a
transactional id, the brokers of a new cluster create `__transaction_state`. The test files in the state folder are
deleted at once.
"""

from __future__ import annotations

import platform
import time
from contextlib import ExitStack
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig, MirrorConfig, ReplicationFlow
from mirror_lib.doctor.checks import (
    BLOCKING,
    OK,
    WARNING,
    Check,
    collisions,
    durability,
    failed,
    missing_operations,
    names,
    time_of_copy,
    timestamps,
)
from mirror_lib.errors import ConfigError, MirrorError
from mirror_lib.facts import TopicConfigs, TopicPartition, readable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.fencing import find_coordinators
from mirror_lib.kafka.reach import Access, log_in, unreachable
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.status.facts import PartitionStatus, retention_problems, unsized
from mirror_lib.status.read import partitions_of
from mirror_lib.takeover.signs import OtherWriter, other_writer_by_tables
from mirror_lib.text import counted
from mirror_lib.topics.filters import group_filter_for
from mirror_lib.topics.old_brokers import settled
from mirror_lib.topics.plan import TopicPlan
from mirror_lib.topics.remote_topics import plan_flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DURABILITY = ("min.insync.replicas", "unclean.leader.election.enable", "message.timestamp.type")
PACKAGES = ("pyspark", "delta-spark", "kafka-python", "pyarrow", "pandas", "deltalake")
ANSWER_SECONDS = 15.0


def packages() -> Iterator[Check]:
    found = [f"{name} {version}" for name, version in ((each, _version(each)) for each in PACKAGES) if version]
    yield Check("here", "versions", OK, f"Python {platform.python_version()}, {', '.join(found)}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def clusters_and_flows(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> Iterator[Check]:
    with ExitStack() as stack:
        connected: Dict[str, KafkaCluster] = {}
        for cluster, role in _clusters(flows):
            yield from _login(cluster, role, connected, stack)
        remotes: Dict[str, List[str]] = {}
        for flow in flows:
            source, target = connected.get(flow.source.alias), connected.get(flow.target.alias)
            if source is not None and target is not None:
                yield from _guarded(flow.name, _flow(config, flow, source, target, remotes))
        shared = frozenset(flow.name for flow in flows if flow.shared_remote_topics)
        yield from collisions(remotes, shared)


def _clusters(flows: Sequence[ReplicationFlow]) -> List[Tuple[ClusterConfig, str]]:
    found: Dict[str, Tuple[ClusterConfig, str]] = {}
    for flow in flows:
        found.setdefault(flow.source.alias, (flow.source, "consumer"))
        found[flow.target.alias] = (flow.target, "producer")
    return list(found.values())


def _guarded(subject: str, checks: Iterator[Check]) -> Iterator[Check]:
    """The checks up to one that could not be carried out, which blocks."""
    try:
        yield from checks
    except MirrorError as error:
        yield failed(subject, "unanswered", error)


def _login(cluster: ClusterConfig, role: str, connected: Dict[str, KafkaCluster], stack: ExitStack) -> Iterator[Check]:
    alias = cluster.alias
    try:
        found = stack.enter_context(KafkaCluster(cluster, ANSWER_SECONDS))
        count, identity = found.broker_count(), found.cluster_id()
        addresses = log_in(Access(cluster, role))
    except MirrorError as error:
        yield failed(alias, "login", error)
        return
    connected[alias] = found
    release = f"Kafka {found.release()} or newer"
    yield Check(alias, "login", OK, f"{counted(count, 'broker')}, cluster id {identity}, {release}")
    away = unreachable(addresses)
    for (host, port), why in away:
        remedy = "open the network to this listener, or correct advertised.listeners of the broker"
        yield Check(alias, "listener", BLOCKING, f"the advertised listener {host}:{port} is not reached: {why}", remedy)
    if not away:
        reported = names([f"{host}:{port}" for host, port in addresses])
        yield Check(alias, "listener", OK, f"every advertised listener is reached: {reported}")


def _flow(
    config: MirrorConfig,
    flow: ReplicationFlow,
    source: KafkaCluster,
    target: KafkaCluster,
    remotes: Dict[str, List[str]],
) -> Iterator[Check]:
    yield from _fencing(config, flow, target)
    plan = plan_flow(flow, source, target, config.flows)
    for topic in plan.copied:
        remotes.setdefault(f"{flow.target.alias}: {topic.remote_topic}", []).append(flow.name)
    yield from _topics(flow, plan)
    yield from _source_acls(flow, plan, source)
    yield from _remote_topics(flow, plan, target)
    yield from _group_acls(flow, source, target)
    yield from _source(config, flow, plan, source, target)


def _fencing(config: MirrorConfig, flow: ReplicationFlow, target: KafkaCluster) -> Iterator[Check]:
    found = settled(flow, target.missing_for_fence())
    if found.refusal is not None:
        yield Check(flow.name, "fencing", BLOCKING, found.refusal.message, found.refusal.hint or "")
        return
    if found.warning:
        yield Check(flow.name, "fencing", WARNING, found.warning, "use brokers that have Kafka 2.5's transactions")
        return
    if found.flow.delivery != "exactly-once":
        yield Check(flow.name, "fencing", WARNING, f"delivery is {flow.delivery}: a second driver is not fenced")
        return
    name = f"{config.name}.{flow.name}.0"
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        with log_client(flow.target, "producer", deadline) as client:
            find_coordinators(client, [name], deadline)
    except MirrorError as error:
        pattern = f"{config.name}.{flow.name}."
        remedy = (
            "kafka-acls --add --allow-principal PRINCIPAL --operation Write "
            f"--transactional-id '{pattern}' --resource-pattern-type prefixed"
        )
        yield Check(flow.name, "acl-transactional-id", BLOCKING, error.message, remedy)
        return
    yield Check(flow.name, "acl-transactional-id", OK, f"the coordinator of {name} answers")


def _topics(flow: ReplicationFlow, plan: TopicPlan) -> Iterator[Check]:
    created = [each.remote_topic for each in plan.copied if each.create is not None]
    if not plan.copied:
        detail, remedy = "the flow copies no topic that is on the source", "mirror plan CONFIG --topic TOPIC"
        yield Check(flow.name, "topics", WARNING, detail, remedy)
    else:
        more = f"; a run creates {counted(len(created), 'remote topic')}" if created else ""
        yield Check(flow.name, "topics", OK, f"{counted(len(plan.copied), 'topic')} to copy{more}")
    for each in plan.blocked:
        detail = f"{each.name} cannot be copied: {each.reason}"
        yield Check(flow.name, "topic-blocked", BLOCKING, detail, "mirror plan CONFIG")


def _source_acls(flow: ReplicationFlow, plan: TopicPlan, source: KafkaCluster) -> Iterator[Check]:
    wanted = {each.source.name: ("READ", "DESCRIBE_CONFIGS") for each in plan.copied}
    granted = source.topic_operations(sorted(wanted))
    yield from missing_operations(f"{flow.name} on {flow.source.alias}", "topic", wanted, granted)


def _remote_topics(flow: ReplicationFlow, plan: TopicPlan, target: KafkaCluster) -> Iterator[Check]:
    subject = f"{flow.name} on {flow.target.alias}"
    there = sorted({each.remote_topic for each in plan.copied if each.create is None})
    needs: Tuple[str, ...] = ("WRITE", "READ", "DESCRIBE_CONFIGS", "ALTER")
    needs += ("ALTER_CONFIGS",) if flow.sync_topic_configs_interval is not None else ()
    yield from missing_operations(subject, "topic", dict.fromkeys(there, needs), target.topic_operations(there))
    read = readable(target.topic_configs(there, DURABILITY))
    configs = _values(read)
    new = {each.remote_topic: each.create for each in plan.copied if each.create is not None}
    validated = target.check_creation(list(new.values()))
    refused = {name: reason for name, (reason, _) in validated.items() if reason is not None}
    for reason in sorted(set(refused.values())):
        of = sorted(name for name, each in refused.items() if each == reason)
        remedy = "grant Create on the topics or on their prefix, or correct the settings that the reason names"
        detail = f"{counted(len(of), 'remote topic')} cannot be created: {names(of)}: {reason}"
        yield Check(subject, "create-topic", BLOCKING, detail, remedy)
    if new and not refused:
        yield Check(subject, "create-topic", OK, f"the brokers would create {counted(len(new), 'remote topic')}")
    configs.update({name: reported for name, (reason, reported) in validated.items() if reason is None and reported})
    brokers = target.broker_count()
    if flow.replication_factor > brokers:
        has = counted(brokers, "broker")
        detail = f"replication.factor is {flow.replication_factor}, and {flow.target.alias} has {has}"
        yield Check(subject, "replicas", WARNING, detail, f"new remote topics get {brokers}")
    yield from durability(subject, configs, min(brokers, max(flow.replication_factor, 2)))
    yield from timestamps(subject, configs)


def _group_acls(flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster) -> Iterator[Check]:
    if not flow.translates:
        return
    chosen = group_filter_for(flow)
    groups = [name for name in source.group_names() if chosen.why_not(name) is None]
    if not groups:
        detail = f"no consumer group that this principal sees on {flow.source.alias} is selected"
        yield Check(flow.name, "groups", OK, detail)
        return
    describe = dict.fromkeys(groups, ("DESCRIBE",))
    on_source = {name: _with_describe(each) for name, each in source.group_operations(groups).items()}
    yield from missing_operations(f"{flow.name} on {flow.source.alias}", "group", describe, on_source)
    if flow.sync_group_offsets_interval is not None:
        subject, there = f"{flow.name} on {flow.target.alias}", target.group_operations(groups)
        visible = set(target.group_names())
        # Brokers report operations only on groups that are there.
        new = [name for name in groups if name not in visible and there.get(name) is None]
        commit = {name: ("READ",) for name in groups if name not in new}
        yield from missing_operations(subject, "group", commit, there, WARNING)
        if new:
            detail = f"Read is checked when offsets are committed: {names(new)} not on {flow.target.alias} yet"
            yield Check(subject, "acl-group", OK, detail)


def _with_describe(granted: Optional[FrozenSet[str]]) -> Optional[FrozenSet[str]]:
    """Kafka counts Describe as granted with Read or Delete."""
    return granted if granted is None or not granted & {"READ", "DELETE"} else granted | {"DESCRIBE"}


def _values(configs: Mapping[str, TopicConfigs]) -> Dict[str, Mapping[str, Optional[str]]]:
    return {name: {key: entry.value for key, entry in entries.items()} for name, entries in configs.items()}


def _other_writer(flow: ReplicationFlow, found: OtherWriter) -> Iterator[Check]:
    refusal = found.refusal(flow.name)
    if refusal is not None:
        yield failed(flow.name, "other-writer", refusal)
    elif found.reason:
        yield Check(flow.name, "other-writer", WARNING, found.reason, found.unknown)


def _source(
    config: MirrorConfig, flow: ReplicationFlow, plan: TopicPlan, source: KafkaCluster, target: KafkaCluster
) -> Iterator[Check]:
    topics = sorted({each.source.name for each in plan.copied})
    read = readable(source.topic_configs(topics, DURABILITY))
    yield from durability(f"{flow.name} on {flow.source.alias}", _values(read), source.broker_count())
    try:
        reader = TableReader(config.state)
    except ConfigError as error:
        detail = f"the ledger cannot be read here: {error.message}"
        yield Check(flow.name, "backlog", WARNING, detail, error.hint or "")
        return
    yield from _other_writer(flow, other_writer_by_tables(config, flow, source, target))
    partitions = partitions_of(flow, plan, source, reader, time.time())
    lagging = [each for each in partitions if each.lag]
    if not lagging:
        yield Check(flow.name, "backlog", OK, "nothing is to be copied now")
        return
    sizes = source.log_sizes(sorted({each.topic for each in lagging}))
    kept = [each for each in lagging if each.kept_seconds is not None]
    first = min(kept, key=lambda each: each.kept_seconds or 0.0, default=None)
    place = "" if first is None else f"{first.topic}-{first.partition}"
    nbytes = None if sizes is None else sum(map(int, (_share(each, sizes) for each in lagging)))
    unknown = unsized(lagging)
    if unknown:
        remedy = f"grant Describe on the cluster {flow.source.alias}; the size of tiered logs stays unknown"
        yield Check(flow.name, "retention", WARNING, unknown, remedy)
    for each in retention_problems([replace(each, kept_seconds=None) for each in lagging]):
        yield Check(flow.name, "retention", WARNING, each.what, each.remedy)
    yield from time_of_copy(
        flow.name, nbytes, flow.max_bytes_per_second, None if first is None else first.kept_seconds, place
    )


def _share(each: PartitionStatus, sizes: Mapping[TopicPartition, int]) -> float:
    """The bytes of a partition that are still to be copied, as if its records were of one size."""
    held = max(1, each.log_end - each.log_start)
    return sizes.get((each.topic, each.partition), 0) * min(1.0, each.lag / held)


def on_spark(spark: SparkSession, config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> Iterator[Check]:
    from mirror_lib.ledger.state_files import why_not_writable
    from mirror_lib.preflight.executors import STATE_HINT, check_executors, on_cluster
    from mirror_lib.replication.stage import most_slots
    from mirror_lib.spark.session import refuse_logins, refuse_settings

    master = str(spark.sparkContext.master)
    yield Check("spark", "version", OK, f"Spark {spark.version} on {master}")
    try:
        refuse_settings(spark)
        refuse_logins(spark.version, flows)
    except MirrorError as error:
        yield failed("spark", "settings", error)
    tailing = sum(flow.tails for flow in flows)
    slots = most_slots(spark)
    if tailing and slots <= tailing:  # none is left for the ledger's commits
        detail = f"Spark has {slots} task slots for {tailing} flows that tail"
        remedy = f"give it {tailing + 1} or more: ./spark-submit.sh --master 'local[8,4]' jobs/mirror.py CONFIG"
        yield Check("spark", "slots", WARNING, detail, remedy)
    else:
        yield Check("spark", "slots", OK, counted(slots, "task slot"))
    if not on_cluster(master):
        why = why_not_writable(spark, config.state)
        yield _state(config.state, why, STATE_HINT)
    else:
        refused = check_executors(spark, flows, config.state, lambda line: None)
        for each in refused:
            yield Check("executors", "executors", BLOCKING, each.message, each.hint or "")
        if not refused:
            yield Check("executors", "executors", OK, "they have the packages, and reach every advertised listener")
            yield _state(config.state, None, STATE_HINT)
    yield from _log_store(spark, config.state)


def _state(state: str, why: Optional[str], remedy: str) -> Check:
    if why is None:
        return Check("state", "writable", OK, f"{state}: tasks write files that the driver reads")
    return Check("state", "writable", BLOCKING, f"{state} cannot be written: {why}", remedy)


def _log_store(spark: SparkSession, state: str) -> Iterator[Check]:
    """S3 lets two writers replace one commit of Delta, and no rename there is atomic."""
    scheme = state.partition(":")[0] if ":" in state else ""
    if scheme not in ("s3", "s3a", "s3n"):
        return
    if spark.conf.get(f"spark.delta.logStore.{scheme}.impl", None) is None:
        detail = f"{state} is on S3, and Spark has no log store for several drivers"
        remedy = f"run one driver at a time, or set spark.delta.logStore.{scheme}.impl (docs/deploy/spark.md, State)"
        yield Check("state", "log-store", WARNING, detail, remedy)
    else:
        yield Check("state", "log-store", OK, f"spark.delta.logStore.{scheme}.impl is set")

"""Looks at clusters, flows, Spark and the state folder, one check after the other. Changes nothing.

Topics that a run would create are validated by the brokers and not created. Asked for the coordinator of a
transactional id, the brokers of a new cluster create `__transaction_state`. The test files in the state folder are
deleted at once.
"""

from __future__ import annotations

import platform
import time
from contextlib import ExitStack, suppress
from importlib import metadata
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig, MirrorConfig, ReplicationFlow
from mirror_lib.doctor.checks import BLOCKING, OK, WARNING, Check, collisions, failed, missing_operations, names
from mirror_lib.errors import ConfigError, MirrorError
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.fencing import find_coordinators
from mirror_lib.kafka.reach import Access, log_in, unreachable
from mirror_lib.ledger.records import TOPIC_BLOCKED
from mirror_lib.status.facts import NEVER_RAN, unsized
from mirror_lib.status.read import flow_state
from mirror_lib.takeover.signs import other_writer_by_tables
from mirror_lib.text import counted
from mirror_lib.topics.filters import group_filter_for
from mirror_lib.topics.old_brokers import settled
from mirror_lib.topics.plan import TopicPlan
from mirror_lib.topics.remote_topics import plan_flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark", "delta-spark", "kafka-python", "pyarrow", "pandas", "deltalake")
ANSWER_SECONDS = 15.0


def packages() -> Iterator[Check]:
    found = []
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    yield Check("here", "versions", OK, f"Python {platform.python_version()}, {', '.join(found)}")


def clusters_and_flows(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> Iterator[Check]:
    with ExitStack() as stack:
        connected: Dict[str, KafkaCluster] = {}
        for cluster, role in _clusters(flows):
            yield from _login(cluster, role, connected, stack)
        remotes: Dict[str, List[str]] = {}
        for flow in flows:
            source, target = connected.get(flow.source.alias), connected.get(flow.target.alias)
            if source is not None and target is not None:
                try:
                    yield from _flow(config, flow, source, target, remotes)
                except MirrorError as error:
                    yield failed(flow.name, "unanswered", error)
        shared = frozenset(flow.name for flow in flows if flow.shared_remote_topics)
        yield from collisions(remotes, shared)


def _clusters(flows: Sequence[ReplicationFlow]) -> List[Tuple[ClusterConfig, str]]:
    found: Dict[str, Tuple[ClusterConfig, str]] = {}
    for flow in flows:
        found.setdefault(flow.source.alias, (flow.source, "consumer"))
        found[flow.target.alias] = (flow.target, "producer")
    return list(found.values())


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
    if plan.copied:
        yield Check(flow.name, "topics", OK, f"{counted(len(plan.copied), 'topic')} to copy")
    else:
        detail, remedy = "the flow copies no topic that is on the source", "mirror plan CONFIG --topic TOPIC"
        yield Check(flow.name, "topics", WARNING, detail, remedy)
    wanted = {each.source.name: ("READ", "DESCRIBE_CONFIGS") for each in plan.copied}
    granted = source.topic_operations(sorted(wanted))
    yield from missing_operations(f"{flow.name} on {flow.source.alias}", "topic", wanted, granted)
    yield from _remote_topics(flow, plan, target)
    yield from _group_acls(flow, source, target)
    yield from _state(config, flow, source, target)


def _fencing(config: MirrorConfig, flow: ReplicationFlow, target: KafkaCluster) -> Iterator[Check]:
    found = settled(flow, target.missing_for_fence())
    if found.refusal is not None:
        yield failed(flow.name, "fencing", found.refusal)
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


def _remote_topics(flow: ReplicationFlow, plan: TopicPlan, target: KafkaCluster) -> Iterator[Check]:
    subject = f"{flow.name} on {flow.target.alias}"
    there = sorted({each.remote_topic for each in plan.copied if each.create is None})
    needs: Tuple[str, ...] = ("WRITE", "READ", "DESCRIBE_CONFIGS", "ALTER")
    needs += ("ALTER_CONFIGS",) if flow.sync_topic_configs_interval is not None else ()
    yield from missing_operations(subject, "topic", dict.fromkeys(there, needs), target.topic_operations(there))
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


def _state(config: MirrorConfig, flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster) -> Iterator[Check]:
    """The problems that `mirror status` has of the flow, and another tool that writes."""
    try:
        state = flow_state(config, flow)
    except ConfigError as error:
        yield Check(flow.name, "state", WARNING, f"the ledger cannot be read here: {error.message}", error.hint or "")
        return
    other = other_writer_by_tables(config, flow, source, target)
    refusal = other.refusal(flow.name)
    if refusal is not None:
        yield failed(flow.name, "other-writer", refusal)
    elif other.reason:
        yield Check(flow.name, "other-writer", WARNING, other.reason, other.unknown)
    problems = [each for each in state.problems if each.code != NEVER_RAN]
    for each in problems:
        level = BLOCKING if each.code == TOPIC_BLOCKED else WARNING
        yield Check(flow.name, each.code, level, each.what, each.remedy)
    if unsized(state.partitions):
        remedy = f"grant Describe on the cluster {flow.source.alias}; the size of tiered logs stays unknown"
        yield Check(flow.name, "retention", WARNING, unsized(state.partitions), remedy)
    if not problems:
        left = f"{counted(state.lag, 'offset')} to copy" if state.lag else "nothing is to be copied now"
        yield Check(flow.name, "state", OK, left)


def on_spark(spark: SparkSession, config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> Iterator[Check]:
    from mirror_lib.preflight.executors import check_executors, on_cluster
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
    refused = check_executors(spark, flows, config.state, lambda line: None)
    for each in refused:
        yield failed("executors", "executors", each)
    if not refused:
        well = "they have the packages, and reach every advertised listener"
        yield Check("executors", "executors", OK, well if on_cluster(master) else "they are the driver's own process")
        yield Check("state", "writable", OK, f"{config.state}: tasks write files that the driver reads")
    yield from _log_store(spark, config.state)


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

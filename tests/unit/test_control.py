"""What is kept in step next to the copy: which pairs have heartbeats, what is reported, and that a refusal stops
nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import pytest

from mirror_lib.config.model import MirrorConfig
from mirror_lib.config.record_change import RecordChange
from mirror_lib.control.heartbeats import beating_pairs
from mirror_lib.control.service import RETRY_SECONDS, Duty, pause_after, read_once, refuse_other_clusters
from mirror_lib.control.sync import Synced, sync_topic_configs
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import TopicConfigEntry, TopicDescription
from mirror_lib.ledger.records import MirrorRun
from mirror_lib.threads import running
from mirror_lib.topics.filters import why_skipped
from tests.unit.configs import AB, FLOW, IN_YAML, YAML, read

C = '  C: {bootstrap.servers: "c:9092"}\n'
THREE = IN_YAML.replace("flows:\n  A->B:\n", C + "flows:\n")
BACK = "  B->A: {enabled: false, emit.heartbeats.enabled: true}\n"


def pairs(config: MirrorConfig) -> List[str]:
    return [pair.name for pair in config.heartbeat_pairs]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["B->A"]),
        ("A->B.emit.heartbeats.enabled = false\n", ["B->A"]),
        ("B->A.emit.heartbeats.enabled = false\n", []),
        ("emit.heartbeats.enabled = false\n", []),
        ("B->A.enabled = true\n", []),
        ("B->A.enabled = false\nB->A.emit.heartbeats.enabled = true\n", ["B->A"]),
        # In YAML only where the file asks for them, and only to clusters that are copied from.
        (THREE + "  A->B: {}\n", []),
        (THREE + "  A->B: {}\n" + BACK, ["B->A"]),
        (THREE + "  A->B: {}\n  C->B: {}\nemit.heartbeats.enabled: true\n", ["B->A", "C->A", "A->C", "B->C"]),
        (THREE + "  A->B: {}\n  B->A: {}\nemit.heartbeats.enabled: true\n", []),
    ],
)
def test_pairs_that_copy_nothing_have_heartbeats_by_the_rules_of_the_file(
    tmp_path: Path, text: str, expected: List[str]
) -> None:
    config = read(tmp_path, text, YAML) if text.startswith("clusters:") else read(tmp_path, FLOW + text)
    assert pairs(config) == expected
    off = text in ("emit.heartbeats.enabled = false\n", "A->B.emit.heartbeats.enabled = false\n")
    assert config.flows[0].emit_heartbeats_interval == (None if off else 1.0)


def test_pair_that_is_asked_by_name_has_heartbeats_also_where_no_flow_reads_them(tmp_path: Path) -> None:
    text = THREE + "  A->B: {}\n  C->A: {}\n  A->C: {enabled: false}\n"
    assert pairs(read(tmp_path, text, YAML)) == []
    asked = "  C->B: {enabled: false, emit.heartbeats.enabled: true}\n"
    assert pairs(read(tmp_path, text + asked, YAML)) == ["C->B"]
    config = read(tmp_path, text + asked + BACK, YAML)
    beating = {flow.name: [pair.name for pair in beating_pairs(config, [flow])] for flow in config.flows}
    assert beating == {"A->B": ["B->A", "C->B"], "C->A": ["C->B"]}, "A's are written by the run that reads A"


def test_turn_that_fails_is_reported_and_the_next_turn_comes() -> None:
    outcomes: List[Any] = [ClusterError("B is away"), ValueError("unheard of"), Synced(changed=1)]
    reported: List[Synced] = []
    enough = threading.Event()

    def turn() -> Synced:
        outcome = outcomes.pop(0) if outcomes else Synced()
        if isinstance(outcome, Synced):
            return outcome
        raise outcome

    def report(synced: Synced) -> None:
        reported.append(synced)
        if len(reported) == 3:
            enough.set()

    with running([Duty("control of a test", 1e-9, turn, report)], 30):
        assert enough.wait(30)
    assert [each.problems for each in reported[:3]] == [("B is away",), ("ValueError: unheard of",), ()]


def test_login_that_was_refused_is_not_tried_again_every_second() -> None:
    refused = Synced(problems=("cannot log in",), refused=True)
    assert pause_after(1.0, refused, 0.5) == pause_after(9999.0, refused, 0.5) == RETRY_SECONDS - 0.5
    assert pause_after(1.0, Synced(problems=("B is away",)), 0.5) == 0.5
    assert pause_after(None, refused, 0.5) is None


def last_run(flow: str) -> Optional[MirrorRun]:
    """The last run of `A->B`, which copied between two clusters with these ids."""
    return MirrorRun("7", flow, 1, "exactly-once", "of A", "of B") if flow == "A->B" else None


@pytest.mark.parametrize(
    ("ids", "other"),
    [
        ({"A": "of A", "B": "of B"}, None),
        ({"A": "of C", "B": "of B"}, "A->B: the source cluster has id of C, and the ledger was written for of A"),
        ({"B": "of C"}, "A->B: the target cluster has id of C, and the ledger was written for of B"),
        ({"C": "of B"}, None),
    ],
)
def test_another_cluster_than_that_of_the_last_run_is_refused_before_topics_and_groups_change(
    tmp_path: Path, ids: Mapping[str, str], other: Optional[str]
) -> None:
    config = read(tmp_path, THREE + "  A->B: {}\n  C->A: {}\n", YAML)
    if other is None:
        refuse_other_clusters(last_run, config.flows, ids)
        return
    with pytest.raises(RefusedError) as refused:
        refuse_other_clusters(last_run, config.flows, ids)
    assert refused.value.message == other


def test_last_run_of_a_flow_is_read_until_there_is_one() -> None:
    """A flow that had no run when a process began has one later, with which other clusters are refused too."""
    found: List[Optional[MirrorRun]] = [last_run("A->B"), None]
    asked = read_once(lambda flow: found.pop())
    assert asked("A->B") is None
    assert asked("A->B") == asked("A->B") == last_run("A->B") and not found


class Refusing:
    """A target that takes no `segment.ms`; it answers nothing but what configs need."""

    alias = "B"

    def __init__(self) -> None:
        self.configs = {"retention.ms": "1", "segment.ms": "1"}

    def broker_count(self) -> int:
        return 1

    def topics(self) -> Mapping[str, TopicDescription]:
        return {name: TopicDescription(name, "", 1, name.startswith("__")) for name in ("orders", "A.orders", "__of_B")}

    def topic_configs(self, names: Sequence[str], keys: Any = None) -> Mapping[str, Mapping[str, TopicConfigEntry]]:
        values = {"retention.ms": "7", "segment.ms": "7"} if "orders" in names else self.configs
        entries = {key: TopicConfigEntry(value, "DYNAMIC_TOPIC_CONFIG", False) for key, value in values.items()}
        return {name: entries for name in names}

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, Optional[str]]]) -> Dict[str, Optional[str]]:
        ((name, change),) = changes.items()
        if "segment.ms" in change:
            return {name: "no segments here"}
        self.configs.update({key: value or "" for key, value in change.items()})
        return {name: None}


def test_config_that_is_refused_does_not_hold_up_the_others() -> None:
    cluster: Any = Refusing()
    synced = sync_topic_configs(AB, (AB,), cluster, cluster)
    assert synced == Synced(changed=1, problems=("B refuses segment.ms for A.orders: no segments here",))
    assert cluster.configs == {"retention.ms": "7", "segment.ms": "1"}


@pytest.mark.parametrize(
    "change",
    [
        # As it is where a part of the name comes from the topic's.
        pytest.param(RecordChange(rename=(("orders", "__of_B"),)), id="internal"),
        pytest.param(RecordChange(dead_letter_topic="A.orders"), id="dead letters"),
        pytest.param(RecordChange(partitioner=12), id="other partition count"),
    ],
)
def test_configs_of_a_topic_that_the_flow_must_not_write_to_are_left_alone(change: RecordChange) -> None:
    cluster: Any = Refusing()
    flow = replace(AB, topics=("orders",), change=change)
    assert sync_topic_configs(flow, (flow,), cluster, cluster) == Synced()
    assert cluster.configs == {"retention.ms": "1", "segment.ms": "1"}


@pytest.mark.parametrize("name", ["orders.internal", "orders-internal"])
def test_files_of_mirrormaker_leave_out_internal_names_as_up_to_3_9_and_say_so(tmp_path: Path, name: str) -> None:
    (flow,) = read(tmp_path, FLOW).flows
    why = why_skipped(name, flow)
    assert why is not None and "up to 3.9" in why and "topics.exclude" in why
    given = FLOW + r"topics.exclude = mm2.*\\.internal, .*\\.replica, __.*"
    (flow,) = read(tmp_path, given).flows
    assert why_skipped(name, flow) is None, "the default of 4.x, written out"
    (flow,) = read(tmp_path, FLOW + r"topics.exclude = .*[\\-\\.]internal").flows
    assert why_skipped(name, flow) == r"excluded by `.*[\-\.]internal`"
    (flow,) = read(tmp_path, IN_YAML, YAML).flows
    assert why_skipped(name, flow) is None

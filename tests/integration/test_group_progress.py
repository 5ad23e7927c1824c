"""Progress that is committed to a group of the source: what is not there any more holds up nothing else."""

from __future__ import annotations

import threading
from typing import Callable, Dict

import pytest
from confluent_kafka import Consumer, TopicPartition

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError
from mirror_lib.facts import CommittedOffset
from mirror_lib.kafka.group_member import GroupMember
from tests.integration.conftest import Ground
from tests.lab.flow_lab import FlowLab, values
from tests.lab.one_flow import until


@pytest.fixture
def lab(ground: Ground, topic_name: Callable[[str], str]) -> FlowLab:
    made = FlowLab(*ground, topic_name("progress"))
    for stem in ("kept", "gone"):
        made.create(stem, 2, retention_ms="-1")
    return made


def committed(lab: FlowLab) -> Dict[int, int]:
    """What the lab's group has committed of the topic that is kept, by partition."""
    consumer = Consumer({"bootstrap.servers": lab.source.bootstrap, "group.id": lab.name})
    asked = [TopicPartition(f"{lab.name}.kept", number) for number in (0, 1)]
    found = consumer.committed(asked, timeout=30)
    consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def test_what_was_taken_back_of_a_deleted_topic_is_not_committed_with_the_rest(lab: FlowLab) -> None:
    kept, gone = f"{lab.name}.kept", f"{lab.name}.gone"
    source = ClusterConfig("source", {"bootstrap.servers": lab.source.bootstrap})
    with GroupMember(source, lab.name, f"{lab.name}[.].*", 0.5) as member:
        assert member.wait_for_turn(threading.Event(), patient=True)
        member.commit({(gone, 0): CommittedOffset(5), (kept, 0): CommittedOffset(1)})
        lab.delete(lab.source, gone)
        member.withdraw({(gone, 0): CommittedOffset(5)})
        member.commit({(kept, 0): CommittedOffset(7)})
        assert committed(lab) == {0: 7}


def test_flow_goes_on_committing_its_progress_when_one_of_its_topics_is_deleted(lab: FlowLab) -> None:
    lab.settings.update({"commit.source.group": lab.name, "commit.source.group.interval.seconds": 2})
    lab.trigger = "1 seconds"
    lab.write("kept", values(50))
    lab.write("gone", values(50))
    with lab.running() as outcomes:
        until(lambda: committed(lab).get(0) == 50)
        lab.write("gone", values(50, "more"))
        until(lambda: len(lab.remote_values("gone")) == 100)
        lab.delete(lab.source, f"{lab.name}.gone")
        for number in range(2, 5):
            lab.write("kept", values(50, f"part {number}"))
            until(lambda count=50 * number: committed(lab).get(0) == count)  # type: ignore[misc]
    assert [each.error for each in outcomes] == [None]
    assert lab.differences("kept") == []


@pytest.mark.parametrize(
    ("session", "reported"), [("1000", "InvalidSessionTimeout"), ("0", "Heartbeat interval must be lower")]
)
def test_group_that_cannot_be_joined_for_good_is_told_and_not_waited_for(
    lab: FlowLab, session: str, reported: str
) -> None:
    source = ClusterConfig("source", {"bootstrap.servers": lab.source.bootstrap, "session.timeout.ms": session})
    refused = pytest.raises(ClusterError, match=f"group {lab.name} cannot be joined: .*{reported}")
    with GroupMember(source, lab.name, f"{lab.name}[.].*", 60) as member, refused:
        member.wait_for_turn(threading.Event(), patient=False)

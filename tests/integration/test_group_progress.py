"""Progress that is committed to a group of the source: it follows the ledger, from process to process, and what is not
there any more holds up nothing else."""

from __future__ import annotations

from typing import Dict

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.facts import CommittedOffset
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.group_progress import GroupProgress
from tests.integration.conftest import Ground, Names
from tests.lab.flow_lab import FlowLab
from tests.lab.group_lab import member, offsets
from tests.lab.one_flow import until


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> FlowLab:
    made = FlowLab(*ground, topic_name("progress"))
    for stem in ("kept", "gone"):
        made.create(stem, 2, retention_ms="-1")
    return made


def committed(lab: FlowLab) -> Dict[int, int]:
    """What the lab's group has committed of the topic that is kept, by partition."""
    return offsets(lab.source, lab.name, f"{lab.name}.kept", 2)


def test_what_was_taken_back_of_a_deleted_topic_is_not_committed_with_the_rest(lab: FlowLab) -> None:
    kept, gone = f"{lab.name}.kept", f"{lab.name}.gone"
    config = ClusterConfig("source", {"bootstrap.servers": lab.source.bootstrap})
    flow = ReplicationFlow(config, config, commit_source_group=lab.name, commit_source_group_interval=0.5)
    with KafkaCluster(config) as source:
        with GroupProgress(source, flow) as progress:
            progress.commit({(gone, 0): CommittedOffset(5), (kept, 0): CommittedOffset(1)})
            assert committed(lab) == {0: 1}
            lab.source.delete_topic(gone)
            progress.withdraw([(gone, 0)])
            progress.offer({(kept, 0): CommittedOffset(7)})
            until(lambda: committed(lab) == {0: 7})
            progress.offer({(kept, 0): CommittedOffset(8)})
        assert committed(lab) == {0: 8}
        with member(lab.source, lab.name, kept):
            with pytest.raises(RefusedError) as refused, GroupProgress(source, flow):
                pass
            assert refused.value.code == "MIR-301"

"""The second job on two running clusters, in this process or in one of its own; what it wrote for MirrorMaker."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ContextManager, Dict, List, Optional

from kafka.errors import KafkaError

from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig
from mirror_lib.groups.mm2_format import Checkpoint, decode_checkpoint
from tests.lab.group_lab import GroupLab
from tests.lab.meanwhile import meanwhile
from tests.lab.readers import read_if_there

if TYPE_CHECKING:
    from mirror_lib.errors import MirrorError
    from mirror_lib.groups.flow import CycleReport

CHECKPOINTS = "source.checkpoints.internal"
EVERY_SECOND: Dict[str, Any] = {
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": 1,
    "emit.checkpoints.interval.seconds": 1,
    "refresh.groups.interval.seconds": 1,
}


@dataclass
class JobLab(GroupLab):
    """A `GroupLab` whose flow is translated by the job. Its groups are those whose names start with its own."""

    reports: List[CycleReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = {**EVERY_SECOND, "groups": f'["{self.name}.*"]', **self.settings}

    def loaded(self, trigger: str) -> MirrorConfig:
        return replace(load(str(self.config)), trigger=trigger)

    def job(self, trigger: str, stop: threading.Event) -> List[MirrorError]:
        """The job in this thread, to its end."""
        from mirror_lib.groups.job import run_translations

        config = self.loaded(trigger)
        return list(run_translations(config, config.flows, self.spark, self.reports.append, stop).values())

    def pass_once(self) -> CycleReport:
        """One full pass, which must succeed."""
        errors = self.job("availableNow", threading.Event())
        assert errors == [], errors
        return self.reports[-1]

    def translating(self) -> ContextManager[List[MirrorError]]:
        """The job continues while the block does; its errors are there afterwards."""
        return meanwhile(partial(self.job, "1 second"))

    def offset(self, group: str, stem: str = "orders", partition: int = 0) -> Optional[int]:
        """The group's offset on the remote topic; `None` while it has none, or no coordinator answers."""
        try:
            return self.at_target(group, stem, partition + 1).get(partition, (None, ""))[0]
        except KafkaError:
            return None

    def done(self, group: str, stem: str = "orders", partition: int = 0) -> Optional[int]:
        """How many records of the remote topic the group has behind it."""
        offset = self.offset(group, stem, partition)
        return None if offset is None else sum(each < offset for each in self.read_remote(stem)[partition])

    def checkpoints(self) -> List[Checkpoint]:
        """Every checkpoint of this lab's groups, in log order."""
        records = read_if_there(self.target, CHECKPOINTS).get(0, {}).values()
        found = [decode_checkpoint(each.key or b"", each.value or b"") for each in records]
        return [each for each in found if each.group.startswith(self.name)]

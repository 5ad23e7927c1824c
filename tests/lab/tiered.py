"""Tiered storage (KIP-405) for real brokers: a folder that may be slow, and topics whose old segments go there."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator

from tests.lab.brokers import KafkaBroker
from tests.lab.java_class import compiled

# A topic of this kind keeps nothing but the segment that is written to.
AT_ONCE = {"remote_storage_enable": "true", "local_retention_ms": "1", "segment_ms": "1000", "retention_ms": "-1"}


@dataclass(frozen=True)
class SlowStore:
    """A folder that brokers use as their tiered storage; its class is compiled into `folder`."""

    folder: Path

    def compiled(self) -> SlowStore:
        compiled("SlowStore", self.folder)
        return self

    def broker_properties(self) -> Dict[str, str]:
        metadata = "rlmm.config.remote.log.metadata.topic"
        return {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "SlowStore",
            "remote.log.storage.manager.class.path": f"{self.folder}/",
            "rsm.config.dir": str(self.folder / "segments"),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            f"{metadata}.replication.factor": "1",
            f"{metadata}.num.partitions": "1",
            "remote.log.manager.task.interval.ms": "500",
            "log.retention.check.interval.ms": "1000",
        }

    @contextmanager
    def slow(self, seconds: float = 600.0) -> Iterator[None]:
        """Meanwhile, for so long at most, brokers get nothing within the time that they wait for it."""
        sign = self.folder / "segments" / "slow"
        sign.touch()
        timer = threading.Timer(seconds, sign.unlink)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            sign.unlink(missing_ok=True)


def first_local_offset(broker: KafkaBroker, topic: str) -> int:
    """Where the oldest segment begins that the broker itself has of partition 0."""
    return min(int(each.name[:-4]) for each in (broker.directory / "data" / f"{topic}-0").glob("*.log"))

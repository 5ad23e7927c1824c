"""`mirror mm1` on two running clusters, in this process; what arrives out."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence

from mirror_lib.commands.mm1 import add, mm1_config
from mirror_lib.config.model import MirrorConfig
from tests.lab.brokers import KafkaBroker, lines_of
from tests.lab.flow_lab import run_config
from tests.lab.readers import read_if_there

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.replication.totals import FlowOutcome


def config_of(*arguments: str) -> MirrorConfig:
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers())
    return mm1_config(parser.parse_args(["mm1", *arguments]))


@dataclass
class Mm1Lab:
    """One group that mirrors one topic. `arguments` are the options other than the two files and the state."""

    source: KafkaBroker
    target: KafkaBroker
    spark: SparkSession
    directory: Path
    group: str
    topic: str
    consumer: Dict[str, str] = field(default_factory=lambda: {"auto.offset.reset": "earliest"})

    def arguments(self, state: str, *more: str) -> List[str]:
        """With the client files rewritten. `state` names a folder of the lab."""
        consumer = {"bootstrap.servers": self.source.bootstrap, "group.id": self.group, **self.consumer}
        producer = {"bootstrap.servers": self.target.bootstrap}
        for name, settings in (("consumer", consumer), ("producer", producer)):
            # Files of their own, since several processes may be started at once.
            (self.directory / f"{state}-{name}.properties").write_text(lines_of(settings))
        files = [f"--{name}.config={self.directory / state}-{name}.properties" for name in ("consumer", "producer")]
        return [*files, f"--whitelist={self.topic}", f"--state={self.directory / state}", *more]

    def run(self, state: str = "state") -> List[FlowOutcome]:
        return self.run_with(self.arguments(state))

    def run_with(self, arguments: Sequence[str]) -> List[FlowOutcome]:
        """In this process, with any arguments."""
        return run_config(replace(config_of(*arguments), trigger="availableNow"), self.spark)

    def copied(self, partition: int = 0) -> List[Optional[bytes]]:
        """Values on the target, for the strictest reader; none while there is no such topic."""
        return [record.value for record in read_if_there(self.target, self.topic).get(partition, {}).values()]

"""Whether a copy is one: both topics read by Java's own consumer, which shares no code with what copied."""

from __future__ import annotations

import subprocess
from typing import Dict, List

from tests.bench.changes import AS_IT_IS
from tests.bench.engines import CLASSES
from tests.lab.brokers import JARS, KafkaBroker, die_with_parent, java_command
from tests.lab.checkout import LabError

# Partition to "COUNT:DIGEST", for partitions that have records.
Digests = Dict[int, str]


class Reader:
    """A Java process that waits to be asked; it uses nothing meanwhile."""

    def __enter__(self) -> Reader:
        self._process = subprocess.Popen(
            [java_command(), "-XX:+UseSerialGC", "-Xmx512m", "-cp", f"{CLASSES}:{JARS}/*", "Digest"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=die_with_parent,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def digests(self, broker: KafkaBroker, topic: str, isolation: str, rule: str = AS_IT_IS) -> Digests:
        """Every record from the first to the present end, in order, as `rule` changes it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{broker.bootstrap} {topic} {isolation} {rule}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if answer.startswith("error") or self._process.poll() is not None:
            raise LabError(f"{topic} could not be read: {answer[:300]}")
        pairs = (word.split(":", 1) for word in answer.split())  # `0:3:ab 2:1:cd`
        return {int(partition): rest for partition, rest in pairs}


def records(digests: Digests) -> int:
    return sum(int(each.split(":")[0]) for each in digests.values())


def differences(source: Digests, remote: Digests) -> List[str]:
    """A sentence for each partition that is not the same on both sides."""
    pairs = {number: (source.get(number, "nothing"), remote.get(number, "nothing")) for number in {**source, **remote}}
    return [
        f"partition {number}: {ours} on the source, {theirs} on the target"
        for number, (ours, theirs) in sorted(pairs.items())
        if ours != theirs
    ]

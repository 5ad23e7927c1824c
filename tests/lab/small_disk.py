"""A small disk that can be filled to the last byte and emptied again: a tmpfs that only this process can see. And the
segments of a stopped broker on its disk: a partition in, its record batches cut off at the end.

The small disk is mounted in a namespace of its own, which needs no root where the kernel lets users make one.
"""

from __future__ import annotations

import errno
import os
import shlex
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Sequence

from tests.lab.brokers import KafkaBroker, child
from tests.lab.checkout import LabError


class SmallDisk:
    """`path` leads to the disk from everywhere; in its namespace, where `python` runs, it is `directory`.

    Programs that resolve links do not find it by `path`. It is gone, with what it holds, after `close`.
    """

    def __init__(self, directory: Path, megabytes: int) -> None:
        self.directory = directory.resolve()
        directory.mkdir(parents=True)
        try:
            mount = f"mount -t tmpfs -o size={megabytes}m tmpfs {shlex.quote(str(directory))} && exec cat"
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            self._holder = child(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount], **pipes)
        except OSError as error:
            raise LabError(f"no small disk can be made here: {error}") from error
        assert self._holder.stdin is not None and self._holder.stdout is not None
        self._holder.stdin.write(b"\n")
        self._holder.stdin.flush()
        if not self._holder.stdout.readline():
            reason = self._holder.communicate()[1].decode().strip()
            raise LabError(f"no small disk can be made here: {reason}")
        self.path = Path(f"/proc/{self._holder.pid}/root{self.directory}")

    def fill(self, leave: int = 0) -> None:
        """Use up all but `leave` bytes."""
        with (self.path / "ballast").open("wb") as file:
            while True:
                room = os.statvfs(self.path)
                try:
                    os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail * room.f_frsize - leave))
                    return
                except OSError as error:  # others may have written meanwhile
                    if error.errno != errno.ENOSPC or not room.f_bavail:
                        raise

    def make_room(self) -> None:
        (self.path / "ballast").unlink()

    def read_only(self, wanted: bool) -> None:
        """Whether the disk takes no writes, as a volume does that its system has remounted after an error. Waits while
        a file is open for writing: the system refuses meanwhile."""
        options = f"remount,{'ro' if wanted else 'rw'}"
        command, attempts = [*self._enter(), "mount", "-o", options, str(self.directory)], 1000
        while subprocess.run(command, check=attempts == 0, stderr=subprocess.DEVNULL).returncode:
            attempts -= 1
            time.sleep(0.02)

    def python(self, arguments: Sequence[str]) -> List[str]:
        """Arguments for a Python that becomes one with `arguments` which has the disk at `directory`."""
        return ["-c", f"import os; os.execvp('nsenter', {[*self._enter(), sys.executable, *arguments]!r})"]

    def _enter(self) -> List[str]:
        return ["nsenter", "-t", str(self._holder.pid), "--user", "--mount", "--preserve-credentials"]

    def close(self) -> None:
        self._holder.communicate()


# Base offset (8 bytes) and length of what follows (4), as Kafka's record batch begins.
_PREFIX = struct.Struct(">qi")


def forget_indexes(segment: Path) -> None:
    """Remove the broker's indexes of the file: it is rebuilt from the batches that are there."""
    for file in segment.parent.iterdir():
        if file.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            file.unlink()


def last_segment(broker: KafkaBroker, topic: str, partition: int) -> Path:
    """The file that the partition's newest records are in. The broker must not run."""
    return max((broker.directory / "data" / f"{topic}-{partition}").glob("*.log"))


def batch_starts(segment: Path) -> List[int]:
    data, starts, at = segment.read_bytes(), [], 0
    while at + _PREFIX.size <= len(data):
        starts.append(at)
        at += _PREFIX.size + _PREFIX.unpack_from(data, at)[1]
    assert at == len(data), f"{segment} does not end with a whole record batch"
    return starts


def cut_tail(segment: Path, batches: int, torn: bool = False) -> None:
    """Take the last `batches` record batches off the file; `torn` leaves half of the first of them."""
    starts = [*batch_starts(segment), segment.stat().st_size]
    first, after = starts[-batches - 1], starts[-batches]
    with segment.open("r+b") as file:
        file.truncate((first + after) // 2 if torn else first)

"""A small disk that can be filled to the last byte and emptied again: a tmpfs that only this process can see.

It is mounted in a namespace of its own, which needs no root where the kernel lets users make one.
"""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Sequence

from tests.lab.brokers import die_with_parent
from tests.lab.checkout import LabError


class SmallDisk:
    """`path` leads to the disk from everywhere; in its namespace, where `python` runs, it is `directory`.

    Programs that resolve links do not find it by `path`. It is gone, with what it holds, after `close`.
    """

    def __init__(self, directory: Path, megabytes: int) -> None:
        self.directory = directory.resolve()
        directory.mkdir(parents=True)
        try:
            self._holder = subprocess.Popen(
                ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount_and("cat", directory, megabytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=die_with_parent,
            )
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


def mount_and(command: str, directory: Path, megabytes: int) -> str:
    """The shell's words for: with a small disk in place of `directory`, run `command`. Needs a mount namespace."""
    return f"mount -t tmpfs -o size={megabytes}m tmpfs {shlex.quote(str(directory))} && exec {command}"

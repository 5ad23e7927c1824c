"""Runs a driver in a process of its own that dies, by SIGKILL, exactly before or after the n-th call of a function.

Works in drivers and in Spark's Python workers, because each of their Pythons imports `crash_site/sitecustomize.py`
first. Instead of dying a process can stop (SIGSTOP), to continue later as a zombie. Nothing in the product knows of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ContextManager, Dict, Iterator, Mapping, Optional, Sequence

from tests.lab.brokers import child
from tests.lab.checkout import ROOT, LabError
from tests.lab.processes import send, stats

SITE = Path(__file__).with_name("crash_site")
HOWS = ("kill", "kill driver", "stop")


@dataclass(frozen=True)
class CrashPoint:
    """Where to die. `function` is `package.module:Class.function`; `call` counts from 1, in each process by itself.

    `token` is a file that does not exist yet: the first process to die creates it, and no other dies after that.
    Without one, every process that reaches the point dies. `how` is what happens there: `kill` ends the process,
    `kill driver` the driver first and then the process, `stop` lets it stand still until SIGCONT.
    """

    function: str
    when: str = "before"
    call: int = 1
    token: Optional[Path] = None
    how: str = "kill"

    def environment(self, inherited: Mapping[str, str] = os.environ) -> Dict[str, str]:
        """`inherited`, with the point armed in every Python process that gets it."""
        if self.when not in ("before", "after") or self.call < 1 or ":" not in self.function or self.how not in HOWS:
            raise LabError(f"{self} is not a point: name module:function, before or after, and a call from 1 on")
        armed = {**inherited, "LAB_CRASH": f"{self.function}@{self.when}#{self.call}", "LAB_CRASH_HOW": self.how}
        armed.pop("LAB_DRIVER", None)
        armed["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SITE), str(ROOT), inherited.get("PYTHONPATH")]))
        if self.token is not None:
            armed["LAB_CRASH_TOKEN"] = str(self.token)
        return armed

    @property
    def reached(self) -> bool:
        """Whether a process died here; needs `token`."""
        assert self.token is not None
        return self.token.exists()


class Driver:
    """A running driver, with the JVM and the workers that it started: one process group."""

    def __init__(self, arguments: Sequence[str], crash: Optional[CrashPoint] = None, **environment: str) -> None:
        inherited = {**os.environ, **environment}
        armed = crash.environment(inherited) if crash else inherited
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process: subprocess.Popen[str] = child([sys.executable, *arguments], env=armed, **output)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self, seconds: float = 180.0) -> int:
        """The exit code, negative for the signal that ended it. Its output is then in `output`."""
        self.output, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode

    def kill(self) -> None:
        """`kill -9` to the driver's Python alone; its JVM and workers notice by themselves, a moment later."""
        self.process.kill()

    def end(self) -> None:
        """`kill -9` to the driver and to all that it started, Spark's Python workers too, which have a process group
        of their own: a worker that outlived its driver once wrote while a test counted."""
        deadline = time.monotonic() + 30
        while left := [pid for pid, each in stats().items() if each.session == self.pid and each.state not in "ZX"]:
            send(left, signal.SIGKILL)
            self.process.poll()
            assert time.monotonic() < deadline, f"processes {left} of a killed driver are still there"
            time.sleep(0.01)
        self.process.wait()


@contextlib.contextmanager
def driver(arguments: Sequence[str], crash: Optional[CrashPoint] = None, **environment: str) -> Iterator[Driver]:
    """A driver that has ended, with all that it started, when the block is left.

    `arguments` are Python's, such as `["-m", "mirror_lib.cli", "run", config]`.
    """
    running = Driver(arguments, crash, **environment)
    try:
        yield running
    finally:
        running.end()


def mirror(*words: object, crash: Optional[CrashPoint] = None, **environment: str) -> ContextManager[Driver]:
    """The command `mirror` with these words, in a process of its own."""
    return driver(["-m", "mirror_lib.cli", *map(str, words)], crash, **environment)


def run_mirror(config: Path, *options: str, crash: Optional[CrashPoint] = None, seconds: float = 180.0) -> int:
    """`mirror run CONFIG` to its end: the exit code, -9 when it was killed."""
    with mirror("run", config, *options, crash=crash) as running:
        return running.wait(seconds)

"""What /proc says of processes: their state, session and parent, and what they used. Linux only."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, NamedTuple, Optional, Tuple

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """One process. `state` is as `ps` prints it, `started` is in ticks; it used the rest itself so far."""

    state: str
    parent: int
    session: int
    started: int
    cpu_seconds: float
    resident_bytes: int


def stat_of(pid: int) -> Optional[Stat]:
    """`None` where the process is gone."""
    with contextlib.suppress(OSError):
        # The name may hold anything, so what counts comes after its last bracket.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(fields[11]) + int(fields[12])) / TICKS
        return Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]), cpu, int(fields[21]) * PAGE)
    return None


def stats() -> Dict[int, Stat]:
    found = ((int(name), stat_of(int(name))) for name in os.listdir("/proc") if name.isdigit())
    return {pid: stat for pid, stat in found if stat is not None}


def state_of(pid: int) -> str:
    """T for stopped; empty where there is none."""
    stat = stat_of(pid)
    return "" if stat is None else stat.state


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def java_of(pid: int) -> int:
    return next(each for each, command in descendants(pid).items() if "java" in command.partition(" ")[0])


def descendants(pid: int) -> Dict[int, str]:
    found: Dict[int, str] = {}
    every, below = stats(), {pid}
    while below:
        below = {each for each, stat in every.items() if stat.parent in below}
        found.update({each: command_of(each) for each in below})
    return found


def send(pids: Iterable[int], signal_: signal.Signals) -> None:
    """The signal to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal_)


def kill_tree(pid: int) -> None:
    send((pid, *descendants(pid)), signal.SIGKILL)


def cpu_of(processes: Iterable[int]) -> float:
    """CPU seconds of processes that live on."""
    return sum(stat.cpu_seconds for stat in map(stat_of, processes) if stat is not None)


class Usage(NamedTuple):
    """At `at` (monotonic seconds): the CPU seconds so far, and the memory held right now."""

    at: float
    cpu_seconds: float
    resident_bytes: int


@dataclass
class SessionMeter:
    """All processes of a session, also those that are gone or lost their parent. A session has its leader's id.

    What a process used between the last look and its end is missed.
    """

    session: int
    _cpu: Dict[Tuple[int, int], float] = field(default_factory=dict)

    def look(self) -> Usage:
        found = {pid: stat for pid, stat in stats().items() if stat.session == self.session}
        self._cpu.update({(pid, stat.started): stat.cpu_seconds for pid, stat in found.items()})
        resident = sum(stat.resident_bytes for stat in found.values())
        return Usage(time.monotonic(), sum(self._cpu.values()), resident)

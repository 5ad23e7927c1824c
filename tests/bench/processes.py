"""What processes use, by /proc: a session's or single processes' CPU seconds and resident memory. Linux only."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Tuple

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """One process: the session that it belongs to, when it started (in ticks), what it used itself so far."""

    session: int
    started: int
    cpu_seconds: float
    resident_bytes: int


class Usage(NamedTuple):
    """At `at` (monotonic seconds): the CPU seconds so far, and the memory held right now."""

    at: float
    cpu_seconds: float
    resident_bytes: int


def parsed(line: str) -> Stat:
    """A line of /proc/PID/stat. The name may hold anything, so what counts comes after its last bracket."""
    fields = line.rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / TICKS
    return Stat(int(fields[3]), int(fields[19]), cpu, int(fields[21]) * PAGE)


def stat_of(pid: int) -> Stat:
    """Raises `OSError` where the process is gone."""
    return parsed(Path(f"/proc/{pid}/stat").read_text())


def pids() -> List[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


@dataclass
class SessionMeter:
    """All processes of a session, also those that are gone or lost their parent. A session has its leader's id.

    What a process used between the last look and its end is missed.
    """

    session: int
    _cpu: Dict[Tuple[int, int], float] = field(default_factory=dict)

    def look(self) -> Usage:
        resident = 0
        for pid in pids():
            try:
                found = stat_of(pid)
            except OSError:
                continue
            if found.session == self.session:
                self._cpu[(pid, found.started)] = found.cpu_seconds
                resident += found.resident_bytes
        return Usage(time.monotonic(), sum(self._cpu.values()), resident)


def cpu_of(processes: Iterable[int]) -> float:
    """CPU seconds of processes that live on."""
    return sum(stat_of(pid).cpu_seconds for pid in processes)

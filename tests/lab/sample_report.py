"""Reports of flows that never were: of many partitions, and of names that attack the page."""

from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from mirror_lib.report.page import FlowReport, MirrorReport
from mirror_lib.report.settings import SettingValue
from mirror_lib.status.facts import (
    FlowStatus,
    GroupStatus,
    IncidentStatus,
    PartitionStatus,
    RunStatus,
    Sign,
    VerifyStatus,
)

NOW = 1_795_000_000.0
HOUR = 3600.0
# Each would change the page, the script's data, a terminal, or what a reader takes a name for.
ATTACKS = (
    "</script><script>window.attacked=1</script>",
    "<img src=x onerror=window.attacked=1>",
    "\" onmouseover=window.attacked=1 x='",
    "</title></style><svg onload=window.attacked=1>",
    "<!--<script>",
    "]]>&lt;b&gt;${env:HOME}$title{{x}}",
    "safe\u202egnp.exe\u2066\u200b",
    "\x1b[2J\x1b]0;owned\x07\u2028\u2029\x00",
    "javascript:window.attacked=1//" + "n" * 219,
)


def run_of(number: int, start: float, signs: int, ended: bool = True) -> RunStatus:
    """A run that copies 100 records a second and signs `signs` times; a row `ended` follows 10 s after the last one."""
    found = [Sign(start, 0, 0)]
    for sign in range(1, signs + 1):
        seconds = sign * 180.0
        found.append(Sign(start + seconds, round(100 * seconds), round(10_000 * seconds), 1000 * sign, 2.0 * sign))
    end = found[-1].at + 10
    if ended:
        found.append(Sign(end, found[-1].records, found[-1].bytes))
    outcome = "ok" if ended else None
    ends = (end if ended else None, outcome, "etl-3 process 7")
    return RunStatus(f"run-{number}", start, found[-1].at, NOW, *ends, signs=tuple(found))


def partition(topic: str, number: int, lag: int = 0) -> PartitionStatus:
    """One of 5,000 offsets; with a lag its next record is ten minutes old, and is kept for five days."""
    times = (600.0, 432_000.0) if lag else (None, None)
    place = (topic, f"primary.{topic}", number, 0, 5000, 5000 - lag, NOW - 5)
    return PartitionStatus(*place, lag, times[0], 0, times[1])


def flow_report() -> FlowReport:
    """A healthy flow under way, whose topic `topic-N` has a lag of 10·N offsets in each partition."""
    run = run_of(2, NOW - 1000, 5, ended=False)
    found = tuple(partition(f"topic-{n}", number, 10 * n) for n in range(3) for number in range(2))
    status = FlowStatus(
        "primary->backup",
        NOW,
        True,
        partitions=found,
        run=run,
        groups=(GroupStatus("billing", 12, "exact", 10, 4012, NOW - 30),),
        runs=(run_of(1, NOW - 5 * HOUR, 10), run),
        incidents=(IncidentStatus("topic recreated", "topic-1", 1, 40, 41, "topic-1 has another id", NOW - 9 * HOUR),),
        verifications=(
            VerifyStatus("A->B", "differs", 3, 9, 1, "topic-1-0: lost at upstream offset 4", "whole", NOW - 2 * HOUR),
            VerifyStatus("A->B", "equal", 3, 4711, 0, "", "whole", NOW - HOUR),
        ),
    )
    clusters = (("primary", "primary:9092 (SASL_SSL)"), ("backup", "backup:9092 (SSL)"))
    return FlowReport(status, clusters, (SettingValue("tasks.max", "4", "1", "mirror.yaml:7"),))


def mirror_report(flows: Sequence[FlowReport]) -> MirrorReport:
    files = (("mirror.yaml", "0123456789abcdef" * 4),)
    return MirrorReport("orders", NOW, "0.1.0", "/mirror-state", "10 seconds", tuple(flows), files)


def hostile_report() -> MirrorReport:
    """Every name and sentence that others choose is one of ATTACKS."""

    def each(number: int) -> str:
        return ATTACKS[number % len(ATTACKS)]

    flow = flow_report()
    all_of_them = range(len(ATTACKS))
    status = replace(
        flow.status,
        partitions=tuple(replace(partition(each(n), 0, n), remote_topic=each(n + 1)) for n in all_of_them),
        groups=tuple(GroupStatus(each(n), 1, each(n + 1), None, n, NOW) for n in all_of_them),
        blocked={each(n): each(n + 1) for n in all_of_them},
        unread=tuple(map(each, all_of_them)),
    )
    incidents = tuple(IncidentStatus(each(n), each(n + 1), 0, 1, 2, each(n + 2), NOW - 60) for n in all_of_them)
    runs = tuple(
        replace(run_of(n, NOW - 600 * (n + 2), 1), outcome=each(n), driver=each(n + 1), run_id=each(n + 2))
        for n in all_of_them
    )
    verified = tuple(VerifyStatus("A->B", each(n), 1, 1, 1, each(n + 2), each(n + 1), NOW) for n in all_of_them)
    settings = tuple(SettingValue(each(n), each(n + 1), each(n + 2), each(n + 3)) for n in all_of_them)
    clusters = ((each(0), each(1)), (each(2), each(3)))
    status = replace(status, runs=runs, incidents=incidents, verifications=verified)
    report = mirror_report([FlowReport(status, clusters, settings)])
    return replace(report, name=each(0), state=each(1), trigger=each(2), files=((each(3), each(4)),))

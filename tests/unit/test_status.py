"""The state of a flow by what was read of it: lag, time until deletion, problems, exit codes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Sequence

import pytest

from mirror_lib.commands.status import exit_code
from mirror_lib.errors import ConfigError, StateError
from mirror_lib.groups.translation import FOREIGN, OLDER, UNRECORDED, untranslatable
from mirror_lib.ledger.table_reader import TableReader, place_of
from mirror_lib.status.facts import (
    DEGRADED,
    HEALTHY,
    UNKNOWN,
    CutoverStatus,
    FlowStatus,
    GroupStatus,
    IncidentStatus,
    PartitionStatus,
    RunStatus,
    Sign,
    VerifyStatus,
    cutover_status,
    partition_status,
    runs_of,
    unsized,
)
from mirror_lib.status.read import _kept
from mirror_lib.status.render import status_lines
from mirror_lib.text import document_of, without_logins
from mirror_lib.topics.matchless import Matchless
from mirror_lib.transactions import OpenTransaction
from tests.lab.flows import flow_of

NOW = 1_700_000_000.0
DAY = 86_400.0
RUN = RunStatus("run-1", NOW - 3600, NOW - 60, NOW, records_per_second=100.0)
FLOW = FlowStatus("A->B", NOW, True, run=RUN)


def partition(
    position: Optional[int], end: int, start: int = 0, next_ms: Optional[int] = None, retention: Optional[int] = None
) -> PartitionStatus:
    at = PartitionStatus("orders", "A.orders", 0, start, end, position)
    return partition_status(at, next_ms, (retention, None), NOW, None)


AN_HOUR_OLD = round((NOW - 3600) * 1000)


def sized(next_ms: Optional[int], limit: int, nbytes: Optional[int] = 1000) -> PartitionStatus:
    """A log of 100 records with 60 still to be copied."""
    at = PartitionStatus("orders", "A.orders", 0, 0, 100, 40)
    return partition_status(at, next_ms, (None, limit), NOW, nbytes)


@pytest.mark.parametrize(
    ("position", "start", "end", "lag", "deleted"),
    [
        *((40, 0, 100, 60, 0), (None, 30, 100, 70, 0), (10, 30, 100, 70, 20), (100, 0, 100, 0, 0)),
        # A source that was truncated ends before the position; a log that was emptied begins at its end.
        *((120, 0, 100, 0, 0), (50, 80, 80, 0, 30)),
    ],
)
def test_lag_counts_from_what_the_source_still_holds(
    position: Optional[int], start: int, end: int, lag: int, deleted: int
) -> None:
    found = partition(position, end, start)
    assert (found.lag, found.deleted) == (lag, deleted)


OVER = ("over groups done", "over check started", "over check done")
REFUSED_BACK = ("back check started", "back check failed")


def cut_over(*steps: str) -> Optional[CutoverStatus]:
    """From rows of direction, step and status, one a second from 130 s ago on."""
    names = ("direction", "step", "status")
    return cutover_status([{**dict(zip(names, each.split())), "at": NOW - 130 + n} for n, each in enumerate(steps)])


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ((), None),
        (OVER, CutoverStatus("over", "check", True, NOW - 128)),
        (OVER[:2], CutoverStatus("over", "check", False, NOW - 129)),
        # A way back that was refused before it changed anything leaves the cut-over as it was.
        ((*OVER, *REFUSED_BACK, *REFUSED_BACK), CutoverStatus("over", "check", True, NOW - 128)),
        (REFUSED_BACK, None),
        (("back check done", "back groups started", "back groups failed"),
            CutoverStatus("back", "groups", False, NOW - 128, True)),
        (REFUSED_BACK[:1], CutoverStatus("back", "check", False, NOW - 130)),
    ],
)  # fmt: skip
def test_cutover_is_that_of_the_last_step(steps: Sequence[str], status: Optional[CutoverStatus]) -> None:
    assert cut_over(*steps) == status


def test_unreadable_tables_are_unknown_and_not_empty() -> None:
    """The screen printed `none yet`, `never` and `none in 30 days` of a state folder with a damaged ledger."""
    unread = FlowStatus("A->B", NOW, True, unread=("no",), runs=None, incidents=None, verifications=None)
    names = ("run", "verified", "events")
    assert [line.split() for line in status_lines(unread)[1:4]] == [[name, "unknown"] for name in names]


def test_flow_that_was_cut_over_needs_no_run_unless_applications_write_on() -> None:
    beats = replace(partition(40, 100), topic="heartbeats", heartbeats=True)
    flow = replace(FLOW, run=replace(RUN, ended=NOW - 120, outcome="ok"), partitions=(beats,))
    moved = replace(flow, cutover=cut_over(*OVER))
    assert moved.problems == () and "  cut-over  applications moved to the target" in "\n".join(status_lines(moved))
    later = replace(moved, partitions=(beats, partition(90, 100)))
    (problem,) = later.problems
    assert problem.code == "written after cut-over" and "10 offsets" in problem.what and "orders-0" in problem.what
    again = replace(later, run=replace(RUN, ended=NOW - 120, outcome="ok", started=NOW - 100))
    for each in (flow, replace(flow, cutover=cut_over(*OVER[:2])), again):
        assert [problem.code for problem in each.problems] == ["not running"]


def test_time_until_deletion_is_that_of_the_next_record_to_copy() -> None:
    found = partition(40, 100, next_ms=AN_HOUR_OLD, retention=round(DAY * 1000))
    assert (found.lag_seconds, found.kept_seconds) == (3600, DAY - 3600)
    assert partition(40, 100, next_ms=AN_HOUR_OLD).kept_seconds is None
    assert partition(40, 100, next_ms=-1, retention=1000).kept_seconds is None
    assert partition(100, 100, next_ms=AN_HOUR_OLD, retention=1000).kept_seconds is None
    overdue = partition(40, 100, next_ms=AN_HOUR_OLD, retention=1000).kept_seconds
    assert overdue is not None and overdue < 0


def test_time_until_deletion_by_size_counts_what_was_written_since_the_next_record() -> None:
    found = sized(AN_HOUR_OLD, limit=1000)
    # 600 bytes came in an hour, and 400 more fill the limit.
    assert (found.size_limit, found.kept_bytes, found.full_seconds) == (1000, 400, 2400)
    assert sized(AN_HOUR_OLD, limit=2000).full_seconds is None
    assert (sized(None, limit=500).kept_bytes, sized(None, limit=500).full_seconds) == (-100, 0)
    unknown = sized(AN_HOUR_OLD, limit=500, nbytes=None)
    assert (unknown.kept_bytes, unsized([found])) == (None, "") and "retention.bytes" in unsized([unknown])


def test_size_of_a_tiered_log_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_kept.__module__}.first_records", lambda *_: SimpleNamespace(times={}))
    configs = {"cleanup.policy": "delete", "retention.bytes": "500"}
    source: Any = SimpleNamespace(log_sizes=lambda topics: {("orders", 0): 1000})
    for tiered, kept_bytes in (("false", -100), ("true", None)):
        entries = {**configs, "remote.storage.enable": tiered}
        own = {name: SimpleNamespace(value=value) for name, value in entries.items()}
        source.topic_configs = lambda *_, own=own: {"orders": own}
        (found,) = _kept(flow_of(), source, [PartitionStatus("orders", "A.orders", 0, 0, 100, 40)], NOW)
        assert (found.size_limit, found.kept_bytes) == (500, kept_bytes)


def rows(*kinds: str, **last: Any) -> List[Dict[str, Any]]:
    found: List[Dict[str, Any]] = [
        {"run_id": "run-1", "kind": kind, "outcome": None, "records": None, "bytes": None, "driver": None,
         "lag_records": None, "lag_seconds": None, "at": NOW - 600 + 100 * n}
        for n, kind in enumerate(kinds)
    ]
    found[-1].update(last)
    return found


def test_run_and_its_rate_come_from_the_rows_of_runs() -> None:
    def last(rows: List[Dict[str, Any]], now: float = NOW) -> RunStatus:
        return runs_of(rows, now)[-1]

    assert runs_of([], NOW) == ()
    assert last(rows("started")).running and last(rows("started")).records_per_second is None
    alive = rows("started", "alive", "alive", records=5000, driver="host process 7")
    alive[1].update(records=1000, lag_records=700, filtered=12, dead_letters=2)
    found, silent = last(alive), last(alive, NOW + 3600)
    assert (found.records_per_second, found.filtered, found.dead_letters) == (40.0, 12, 2)
    assert found.driver == "host process 7"
    assert found.running and not silent.running and found.signs[1].lag_records == 700
    ended = last(rows("started", "ended", outcome="ok", records=700))
    assert ended.filtered is None and not ended.running
    assert (ended.outcome, ended.records_per_second) == ("ok", 7.0)
    assert (ended.end, found.end, silent.end, replace(found, killed=True).end) == ("ok", "running", "died", "died")
    older = [{**row, "run_id": "run-0", "at": row["at"] - 1000} for row in rows("started", "ended", outcome="boom")]
    assert last([*rows("started"), *older]).run_id == "run-1"


DIED = replace(RUN, last_sign=NOW - 3600)
FAILED = replace(RUN, ended=NOW - 50, outcome="A->B: 1 partition stopped")
STOPPED = replace(RUN, ended=NOW - 50, outcome="stopped")
AGAIN = replace(RUN, run_id="run-2", started=NOW - 30)
LAGGING = (partition(40, 100),)
OLD = (replace(partition(40, 100, 0, round((NOW - 3600) * 1000), 2 * 3600 * 1000), copied_at=NOW - 5),)
STUCK = (replace(partition(40, 100, next_ms=round((NOW - 600) * 1000)), copied_at=NOW - 300),)
SKIPPED = IncidentStatus("offsets skipped", "orders", 0, 4, 5, "too large", NOW - 60)
HALTED = replace(SKIPPED, kind="partition stopped")
HANGING = OpenTransaction("orders", 0, "transactional id payments", 7, NOW - 3600, 12, NOW - 3600)
GROUP = GroupStatus("billing", 2, "exact", 0, None, None)
LACKING = tuple(Matchless(key, "mirror.yaml:7", f"no {key[:-1]} of A matches `x`") for key in ("topics", "groups"))
CUT_OVER = CutoverStatus("over", "check", True, NOW)
MOVED = ("exact", "active on target", "held: ahead of the ledger by 7", "held: nothing of this partition is copied yet")
NOT_MOVED = (FOREIGN, untranslatable(OLDER), untranslatable(UNRECORDED))
DIFFERS = VerifyStatus("A->B", "differs", 1, 10, 1, "orders-0: lost at upstream offset 4", "whole", NOW - 60)


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, []),
        (dict(partitions=LAGGING), []),
        (dict(run=STOPPED, continuous=False, partitions=LAGGING), []),
        (dict(run=STOPPED), []),
        (dict(run=STOPPED, partitions=LAGGING), ["not running"]),
        (dict(partitions=STUCK), ["no progress"]),
        (dict(partitions=(replace(STUCK[0], copied_at=NOW - 30),)), []),
        (dict(partitions=STUCK, run=AGAIN), []),
        (dict(partitions=STUCK, run=AGAIN, runs=(replace(FAILED, last_sign=NOW - 40), AGAIN)), ["no progress"]),
        (dict(partitions=STUCK, run=AGAIN, runs=(replace(FAILED, last_sign=NOW - 900), AGAIN)), []),
        (dict(run=None), ["never ran"]),
        (dict(run=DIED), ["run died"]),
        (dict(run=FAILED), ["run failed"]),
        (dict(unread=("cannot reach the cluster A",)), ["unreadable"]),
        (dict(partitions=OLD), ["retention"]),
        (dict(partitions=(sized(None, 500),)), ["retention"]),
        (dict(partitions=(sized(None, 5000),)), []),
        (dict(partitions=(partition(10, 100, start=30),)), ["deleted before copied"]),
        (dict(partitions=(partition(None, 100, start=30),)), []),
        (dict(transactions=(HANGING,)), ["hanging transaction"]),
        # Timestamps of records are their producer's choice, and a leader may not show the producer.
        (dict(transactions=(replace(HANGING, started=NOW - 60),)), []),
        (dict(transactions=(replace(HANGING, at=NOW),)), ["hanging transaction"]),
        (dict(transactions=(replace(HANGING, started=None),)), ["open transaction"]),
        (dict(transactions=(replace(HANGING, at=NOW - 60, started=None),)), []),
        (dict(transactions=(replace(HANGING, at=None, started=None),)), []),
        (dict(blocked={"audit": "no remote name"}), ["topic blocked"]),
        (dict(matchless=LACKING), ["no such topic", "no such group"]),
        (dict(matchless=LACKING, run=STOPPED, cutover=CUT_OVER), []),
        (dict(incidents=(SKIPPED,)), ["data lost"]),
        (dict(incidents=(replace(SKIPPED, at=NOW - 2 * DAY),)), []),
        (dict(incidents=(replace(SKIPPED, kind="topic recreated"),)), []),
        (dict(incidents=(HALTED,)), ["partition stopped"]),
        (dict(incidents=(replace(HALTED, at=NOW - 7200),)), []),
        # The run's own error already names this partition.
        (dict(run=replace(FAILED, outcome="A->B: too large"), incidents=(HALTED,)), ["run failed"]),
        *((dict(groups=(replace(GROUP, verdict=each),)), []) for each in MOVED),
        *((dict(groups=(replace(GROUP, verdict=each),)), ["group not moved"]) for each in NOT_MOVED),
        (dict(groups=(replace(GROUP, verdict=FOREIGN),), run=STOPPED, cutover=CUT_OVER), []),
        (dict(verifications=(DIFFERS,)), ["verify"]),
        (dict(verifications=(replace(DIFFERS, verdict="equal"),)), []),
    ],
)
def test_state_by_what_was_found(changes: Dict[str, Any], codes: List[str]) -> None:
    status = replace(FLOW, **changes)
    state = UNKNOWN if {"never ran", "unreadable"} & {*codes} else DEGRADED if codes else HEALTHY
    assert (status.state, [each.code for each in status.problems]) == (state, codes)
    lines = "\n".join(status_lines(status))
    assert all(each.what in lines and each.remedy in lines for each in status.problems)
    assert max(map(len, lines.split("\n"))) <= 120
    assert document_of(status)["state"] == state


def test_remedy_never_lowers_what_the_topic_keeps() -> None:
    (problem,) = replace(FLOW, partitions=OLD).problems
    assert problem.remedy.endswith("--add-config retention.ms=-1")


def test_eta_goes_by_how_fast_the_lag_falls() -> None:
    """A rate of copying says nothing where as much comes in."""
    sign = replace(RUN, signs=(Sign(NOW - 100, 0, 0, 260), Sign(NOW - 5, 0, 0, 61)))
    falling = replace(FLOW, partitions=LAGGING, run=sign)  # a lag of 60
    assert falling.eta_seconds == 60 * 100 / 200, "the last sign is too young"
    assert replace(falling, run=replace(sign, ended=NOW - 50)).eta_seconds is None
    assert replace(falling, run=replace(sign, signs=(Sign(NOW - 100, 0, 0, 60),))).eta_seconds is None
    assert replace(falling, run=RUN).eta_seconds is None and replace(falling, partitions=()).eta_seconds is None


def test_exit_code_is_that_of_the_worst_flow() -> None:
    degraded, unknown = replace(FLOW, run=FAILED), replace(FLOW, run=None)
    assert [exit_code(each) for each in ([FLOW], [FLOW, degraded], [degraded, unknown, FLOW])] == [0, 1, 2]


def test_place_of_the_state_folder() -> None:
    places = {
        "./mirror-state": "./mirror-state",
        "/mnt/state/": "/mnt/state",
        "file:///mnt/state": "/mnt/state",
        "dbfs:/mirror/state": "/dbfs/mirror/state",
        "s3a://bucket/state": "s3://bucket/state",
        "abfss://box@account.dfs.core.windows.net/state": "abfss://box@account.dfs.core.windows.net/state",
    }
    assert {state: place_of(state) for state in places} == places
    for state in ("hdfs://nn/state", "wasbs://box@account.blob.core.windows.net/state"):
        with pytest.raises(ConfigError, match="Hadoop"):
            place_of(state)


def test_login_in_the_address_of_the_state_folder_is_not_shown(tmp_path: Path) -> None:
    """An old form of S3's addresses has the key and its secret."""
    reader = TableReader(f"s3a://KEY:SECRET@127.0.0.1:9/{tmp_path.name}?signature=SECRET")
    with pytest.raises(StateError) as found:
        reader.rows("runs", ("run_id",), "A->B")
    assert "SECRET" not in str(found.value) and "KEY" not in str(found.value)
    assert without_logins("abfss://box@account.dfs.core.windows.net/s") == "abfss://box@account.dfs.core.windows.net/s"

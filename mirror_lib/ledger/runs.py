"""The table of runs: a row at the start of a run, a row at its end, and signs of life in between."""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.errors import RefusedError
from mirror_lib.ledger.compaction import is_due
from mirror_lib.ledger.delta_table import StateTable, seconds_ago
from mirror_lib.ledger.records import (
    DAY_SECONDS,
    DEAD_SECONDS,
    RUN_COLUMNS,
    SIGN_SECONDS,
    MirrorRun,
    Progress,
    latest_run,
    same_clusters,
)
from mirror_lib.ledger.tables import RUNS
from mirror_lib.run_lock import died_here, this_driver
from mirror_lib.text import duration

# Each sign of life is a file, so older ones are thinned out.
KEPT_SIGNS_SECONDS = 3600.0
_FACTS = tuple(MirrorRun.__dataclass_fields__)


@dataclass(frozen=True)
class OpenRun:
    """A run of `flow` without an end row: when it `started`, its `last_sign` of life, and its `driver`: host and
    process."""

    flow: str
    run_id: str
    started: float
    last_sign: float
    driver: Optional[str]

    def under_way(self) -> str:
        ago = duration(max(0.0, time.time() - self.last_sign))
        return f"{self.flow}: run {self.run_id} is under way, its last sign of life {ago} ago"


class RunTable:
    """The runs of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, RUNS)

    def started(self, run: MirrorRun) -> None:
        self._append(run, "started")

    def ended(self, run: MirrorRun, outcome: str, at: Progress) -> None:
        """Record the end of `run` without its lag: `outcome` is `ok` or one sentence, without secrets."""
        self._append(run, "ended", replace(at, lag_records=None, lag_seconds=None), outcome)

    def merge_files(self) -> None:
        """Merge the table's files at the end of every fiftieth run: each run adds two, and each file costs every reader
        a millisecond."""
        version = self._table.version
        if version is not None and any(is_due(version, commits) for commits in (-1, 0)):
            self._table.tidy(2)

    def alive(self, run: MirrorRun, at: Progress) -> None:
        self._append(run, "alive", at)

    def _append(self, run: MirrorRun, kind: str, at: Optional[Progress] = None, outcome: Optional[str] = None) -> None:
        facts = (run.run_id, run.flow, kind, *(getattr(run, name) for name in _FACTS[2:]), outcome)
        records, size, *rest = (None,) * 6 if at is None else astuple(at)
        self._table.append([(*facts, records, size, this_driver(), *rest)])

    def drop_old_signs(self, flow: str, days: int) -> None:
        """Of the flow's signs of life older than an hour, keep one an hour for so many days, and delete the others.

        `mirror report` draws the remaining ones. The data files are deleted when no retained version needs them."""
        hour, expired = F.expr(seconds_ago(KEPT_SIGNS_SECONDS)), F.expr(seconds_ago(days * DAY_SECONDS))
        minute = F.expr("minute(at)")
        old = (F.col("at") < hour) & (minute * 60 >= SIGN_SECONDS) | (F.col("at") < expired)
        signs = (F.col("kind") == "alive") & (F.col("flow") == flow)
        self._table.change(lambda: self._table.delta().delete(signs & old))
        self._table.drop_replaced_files()

    def open_runs(self, flows: Sequence[str]) -> List[OpenRun]:
        """The runs of `flows` without an end row and with a sign of life in the last `DEAD_SECONDS`, by this driver's
        clock; the first start first."""
        runs: Dict[Tuple[str, str], List[Mapping[str, Any]]] = {}
        for flow in flows:
            for row in self._table.of_flow(flow, ("run_id", "kind", "at", "driver")):
                runs.setdefault((flow, row["run_id"]), []).append(row)
        found = []
        for (flow, run_id), rows in runs.items():
            times = [row["at"].timestamp() for row in rows]
            if max(times) > time.time() - DEAD_SECONDS and all(row["kind"] != "ended" for row in rows):
                found.append(OpenRun(flow, run_id, min(times), max(times), rows[0]["driver"]))
        return sorted(found, key=lambda run: run.started)

    def other_runs(self, flows: Sequence[str]) -> List[OpenRun]:
        """`open_runs` without those of ended processes of this machine: what another process may copy now."""
        return [run for run in self.open_runs(flows) if not died_here(run.driver)]

    def refuse_while_copied(self, flow: str, remedy: str) -> None:
        """Raise `RefusedError` where another process may copy `flow` now: a command that moves its groups or writes its
        ledger waits for that to end."""
        running = self.other_runs([flow])
        if running:
            raise RefusedError(f"{running[-1].under_way()}; nothing was changed", remedy, code="MIR-301")

    def latest(self, flow: str) -> Optional[MirrorRun]:
        return self.latest_with_end(flow)[0]

    def same_clusters(self, flow: str, clusters: Tuple[str, str]) -> None:
        """Raise `RefusedError` if the cluster ids of source or target differ from the ids at the flow's last run."""
        last = self.latest(flow)
        same_clusters(flow, clusters, None if last is None else last.clusters)

    def same_cluster(self, flow: str, alias: str, cluster_id: str) -> None:
        last = self.latest(flow)
        if last is not None:
            source, target = last.clusters
            now = (cluster_id, target) if flow.startswith(f"{alias}->") else (source, cluster_id)
            same_clusters(flow, now, last.clusters)

    def latest_with_end(self, flow: str) -> Tuple[Optional[MirrorRun], bool]:
        return latest_run(self._table.of_flow(flow, RUN_COLUMNS))

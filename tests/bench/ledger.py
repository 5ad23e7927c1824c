"""`make bench-ledger`: what it costs to read a ledger of up to 10 million rows, and to commit to it again and again.

Figures of one machine in one run; every answer is checked. Two charts for `tests.bench.plot` go to .cache/bench:
ledger-reads.json and ledger-commits.json. PARTS="reads commits aged": what is measured. COMMITS=n: so many commits
(default 2000), and of a ledger that had 100,000 before a fifth of it. KEPT=n: so many of these in Delta's log.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast

from mirror_lib.ledger.compaction import LedgerCompaction, Upkeep
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow, Position
from mirror_lib.ledger.tables import OFFSET_SYNCS
from mirror_lib.spark.java import JARS_DIR
from mirror_lib.spark.session import open_session
from mirror_lib.text import aligned, grouped
from tests.bench.aged_log import age
from tests.lab.checkout import CACHE, ROOT, LabError, jars_folder

FLOW = "primary->backup"
CHARTS = CACHE / "bench"
PARTITIONS_OF_A_TOPIC = 10
# Partitions, and runs of each. A marker upstream follows each run, so no two of them can be merged.
GROWTH: Sequence[Tuple[int, int]] = ((1000, 100), (1000, 1000), (10_000, 1000))
SHAPES = (*GROWTH, (100, 100_000))
COMMITTED_PARTITIONS = 100
COMMITS_TO_A_FIGURE = 100
# A gap every fiftieth commit begins a run.
COMMITS_TO_A_RUN = 50
OLD = 100_000
# Larger files than commits leave, and small enough to be merged.
ROWS_OF_A_FILE = 100_000
# What Delta's own retention leaves of a log, at most: two days, 17,280 commits at one every 10 s.
KEPT = int(os.environ.get("KEPT", "17280"))


def run() -> int:
    os.environ.setdefault(JARS_DIR, str(jars_folder()))
    CHARTS.mkdir(parents=True, exist_ok=True)
    parts, count = os.environ.get("PARTS", "reads commits aged").split(), int(os.environ.get("COMMITS", "2000"))
    reads: List[Mapping[str, float]] = []
    made: List[Mapping[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder:
        if "reads" in parts:
            reads += [read_figures(Path(folder), *shape) for shape in SHAPES]
        if "commits" in parts:
            made += in_a_process("commits", f"{folder}/young", str(count), "0")["commits"]
        if "aged" in parts:
            made += aged_figures(Path(folder), count // 5)
    cores = f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}."
    if reads:
        growth = chart_points(reads[: len(GROWTH)], "rows")
        first = {name: points for name, points in growth.items() if name.endswith("first")}
        keep("ledger-reads", "Reading the ledger, by a new process", "rows", first, cores)
    if made:
        keep("ledger-commits", "A commit to the ledger", "commits before", chart_points(made, "commits"), cores)
    show([reads, made])
    return 0


def aged_figures(folder: Path, count: int) -> Sequence[Mapping[str, float]]:
    """Commits to a ledger that had OLD of them."""
    state = str(folder / "old")
    in_a_process("fill", state, str(COMMITTED_PARTITIONS), str(OLD // COMMITS_TO_A_RUN))
    age(Path(state) / OFFSET_SYNCS.name, OLD, KEPT)
    figures: Sequence[Mapping[str, float]] = in_a_process("commits", state, str(count), str(OLD))["commits"]
    return figures


def keep(name: str, title: str, x: str, series: Mapping[str, object], text: str) -> None:
    chart = {"name": name, "title": title, "x": x, "y": "seconds", "series": series, "text": text}
    (CHARTS / f"{name}.json").write_text(json.dumps(chart, indent=1))


def chart_points(figures: Sequence[Mapping[str, float]], x: str) -> Mapping[str, Sequence[Tuple[float, float]]]:
    """A line for each figure that is a time."""
    names = [name for name, value in figures[0].items() if isinstance(value, float)]
    return {name: [(each[x], each[name]) for each in figures] for name in names}


def show(tables: Sequence[Sequence[Mapping[str, float]]]) -> None:
    print(f"\n{os.cpu_count()} cores; load average {os.getloadavg()[0]:.1f}; seconds\n")
    for rows in filter(None, tables):
        print("\n".join(aligned([tuple(rows[0]), *(tuple(_cell(value) for value in row.values()) for row in rows)])))
        print()


def _cell(value: float) -> str:
    return grouped(value) if isinstance(value, int) else f"{value:.2f}"


def read_figures(folder: Path, partitions: int, runs: int) -> Mapping[str, float]:
    """Of a ledger as commits leave it, each by a process that knows nothing yet."""
    state = str(folder / f"state-{partitions}-{runs}")
    in_a_process("fill", state, str(partitions), str(runs))
    figures: Dict[str, float] = {"rows": partitions * runs, "partitions": partitions}
    for question in ("positions", "triples"):
        figures.update(in_a_process(question, state, str(partitions), str(runs)))
    shutil.rmtree(state)
    return figures


def in_a_process(*arguments: str) -> Any:
    command = [sys.executable, "-m", "tests.bench.ledger", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise LabError(f"{arguments[0]} ended with exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def topic(number: int) -> str:
    return f"load.{number // PARTITIONS_OF_A_TOPIC}"


def first_row(number: int) -> LedgerRow:
    """The first run of the partition of that number."""
    name = topic(number)
    ids = [f"{cluster}{name}".ljust(22, "0") for cluster in "AB"]
    return LedgerRow(name, f"primary.{name}", number % PARTITIONS_OF_A_TOPIC, ids[0], ids[1], 0, 0, 2)


def fill(spark: SparkSession, state: str, partitions: int, runs: int) -> Mapping[str, float]:
    """One real append makes the table, Spark the rows that later commits would have added; then they are merged."""
    table = OffsetSyncTable(spark, state)
    rows = [first_row(number) for number in range(partitions)]
    table.append(FLOW, rows, run_id="bench", append_number=0, query_id="", batch_id=-1)
    first = spark.read.format("delta").load(table.path)
    moved = {"upstream_offset": "3 * n", "downstream_offset": "2 * n"}
    columns = [f"{moved.get(column.name, column.name)} as {column.name}" for column in OFFSET_SYNCS.columns]
    files = max(8, partitions * runs // ROWS_OF_A_FILE)
    # With what stays broadcast the range keeps its partitions, whichever of both has fewer rows.
    numbers = spark.range(1, runs, 1, files).withColumnRenamed("id", "n")
    later = numbers.crossJoin(broadcast(first)).selectExpr(*columns)
    later.write.format("delta").mode("append").save(table.path)
    compaction = LedgerCompaction(spark, state, FLOW)
    found = compaction.due(2)
    if found is None:
        raise LabError("nothing was found to be merged")
    began = time.monotonic()
    compaction.merge(found)
    took = time.monotonic() - began
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table.path).checkpoint()
    return {"merged": took}


def positions(spark: SparkSession, state: str, partitions: int, runs: int) -> Mapping[str, float]:
    """What `mirror run` asks at its start."""
    table = OffsetSyncTable(spark, state)
    figures, found = timed("positions", lambda: table.positions(FLOW))
    if len(found) != partitions or set(found.values()) != {Position(3 * runs - 1, 2 * runs)}:
        raise LabError(f"wrong positions, {len(found)} of them")
    return figures


def triples(spark: SparkSession, state: str, partitions: int, runs: int) -> Mapping[str, float]:
    """What a translation asks: everything."""
    table = OffsetSyncTable(spark, state)
    figures, found = timed("triples", lambda: table.triples(FLOW))
    if len(found) != partitions or any(len(flat) != 3 * runs or flat[-1] != 2 for flat in found.values()):
        raise LabError(f"wrong triples, of {len(found)} partitions")
    return figures


def timed(name: str, ask: Callable[[], Any]) -> Tuple[Dict[str, float], Any]:
    """The first answer in this process, and one of a process that has read before."""
    began = time.monotonic()
    ask()
    first = time.monotonic()
    found = ask()
    return {f"{name}, first": first - began, f"{name}, again": time.monotonic() - first}, found


def commits(spark: SparkSession, state: str, count: int, before: int) -> Mapping[str, object]:
    """Real commits of rows that mostly continue the rows before, with the upkeep that a run has."""
    table, upkeep = OffsetSyncTable(spark, state), Upkeep(FLOW, LedgerCompaction(spark, state, FLOW))
    run_id, figures = uuid.uuid4().hex, []
    took: List[float] = []
    first_rows = [first_row(each) for each in range(COMMITTED_PARTITIONS)]
    for number in range(before, before + count):
        at = _upstream(number), 2 * number
        rows = [replace(row, upstream_offset=at[0], downstream_offset=at[1]) for row in first_rows]
        began = time.monotonic()
        table.append(FLOW, rows, run_id=run_id, append_number=number, query_id="q", batch_id=number)
        upkeep.committed()
        took.append(time.monotonic() - began)
        if len(took) == COMMITS_TO_A_FIGURE:
            figures.append(_commit_figure(spark, table, number + 1, took))
            took = []
    upkeep.wait(60)
    end = before + count
    if set(table.positions(FLOW).values()) != {Position(_upstream(end - 1) + 2, 2 * end)}:
        raise LabError("wrong positions after the commits")
    return {"commits": figures}


def _upstream(commit: int) -> int:
    """Every fiftieth commit has a gap before it."""
    return 2 * commit + 2 * (commit // COMMITS_TO_A_RUN)


def _commit_figure(spark: SparkSession, table: OffsetSyncTable, number: int, took: Sequence[float]) -> Dict[str, float]:
    rows = spark.read.format("delta").load(table.path)
    figure: Dict[str, float] = {"commits": number, "median": statistics.median(took), "slowest": max(took)}
    print(number, figure, file=sys.stderr, flush=True)
    return {**figure, "files": len(rows.inputFiles()), "rows": rows.count()}


QUESTIONS: Mapping[str, Callable[..., Mapping[str, object]]] = {
    "fill": fill,
    "positions": positions,
    "triples": triples,
    "commits": commits,
}


def answer(question: str, state: str, *numbers: str) -> int:
    spark = open_session("bench")
    print(json.dumps(QUESTIONS[question](spark, state, *map(int, numbers))))
    spark.stop()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(answer(*sys.argv[1:]) if sys.argv[1:] else run())
    except LabError as error:
        print(f"bench-ledger: {error}", file=sys.stderr)
        sys.exit(1)

"""Changed rows of one Spark task in, as Arrow comes; record batches on the remote logs and a `TaskReport` out.

Order of effects: the driver has fenced every lane; here what an interrupted attempt left is compared, the rest is
appended, and then reported. Killed in between, the driver fences again, and the next pass compares.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Set, Tuple

import pyarrow as pa

from mirror_lib.errors import FencedError
from mirror_lib.log.connection import Disconnected, LogClient, Network
from mirror_lib.records.dead_letters import DeadLetter
from mirror_lib.records.large_rows import LargeRow, before_large
from mirror_lib.records.narrow_rows import widened
from mirror_lib.records.remainder import ANEW, Unsettled
from mirror_lib.records.row_partition import RowPartition
from mirror_lib.records.rows import SOURCE, Partition, Stretch, made_of, stretches
from mirror_lib.records.sending import PATIENCE_SECONDS, Sending
from mirror_lib.records.source_ends import SourceEnds
from mirror_lib.records.source_topics import SourceTopics
from mirror_lib.replicate.lanes import PartitionTask, TaskPlan, TaskReport, nothing_copied
from mirror_lib.replicate.sync_runs import gathered

log = logging.getLogger(__name__)

QUEUE_BYTES = 8 * 1024 * 1024
# Dead letters travel to the driver, so a task keeps about so many bytes of them in one pass.
DEAD_BYTES = 8 * 1024 * 1024
MOST_FAILED = 10
NO_SUCH_PLACE = "the flow gives it a place that is not in this pass, where it would be lost"
TWO_FAILED = "the flow gives more than one record of it that failed, and one dead letter tells of each"


@dataclass(frozen=True)
class RowsPlan:
    """What every task of a stage is told: `plan` holds all partitions of the pass, with lanes that are fenced.

    A partition without a sequence may have something left on its remote log. `repeatable`: the rows are the same
    each time they are asked for. `skips`: a row that failed is left out, and does not stop its partition. `mixed`: a
    remote partition gets rows of several source partitions, and the plan's tasks name remote partitions alone.
    `source_ids` are those of the source's topics, as far as they have any. Of the remote partitions `more_behind` the
    source is known to have more than their tasks' ranges. `unsettled` is what the last pass left, see `Remainder`.
    """

    plan: TaskPlan
    repeatable: bool
    skips: bool
    mixed: bool = False
    source_ids: Mapping[str, str] = field(default_factory=dict)
    more_behind: FrozenSet[Partition] = frozenset()
    unsettled: Mapping[Partition, Unsettled] = field(default_factory=dict)


@dataclass(frozen=True)
class RowsReport:
    """What became of a task. `broken`: it ended early, and nobody knows what became of what was in flight. `aged` are
    the remote partitions whose last batch is so old that brokers may soon forget who wrote it. The driver has to append
    the `dead` letters before it believes the positions. `failed`: the first rows that became no record, where rows are
    mixed, or that have no place. `cut`: its time was up before its rows were; partitions of which it does not tell were
    not reached; `large`: since a row was too large to come with others. `unsettled` is for the next pass. `newest`:
    where rows are mixed, the highest timestamp of those of each source partition.
    """

    report: TaskReport
    broken: bool
    aged: Tuple[Partition, ...]
    dead: Tuple[DeadLetter, ...] = ()
    failed: Tuple[Tuple[Partition, int, str], ...] = ()
    cut: bool = False
    large: bool = False
    unsettled: Tuple[Tuple[Partition, Unsettled], ...] = ()
    newest: Mapping[Partition, int] = field(default_factory=dict)


class RowWriter:
    """One attempt at one task's rows."""

    def __init__(self, given: RowsPlan, number: int) -> None:
        self._given = given
        self._plan = given.plan
        self._number = number
        self._tasks: Dict[Partition, List[PartitionTask]] = {}
        for task in given.plan.tasks:
            self._tasks.setdefault(task.source, []).append(task)
        self._network = Network()
        self._client = LogClient(self._network, given.plan.target_alias, given.plan.target_options)
        self._sending = Sending(self._client)
        self._topics = SourceTopics(self._network, given.plan, given.source_ids)
        self._ends = SourceEnds(self._network, given.plan)
        self._dead: Dict[Tuple[Partition, int], DeadLetter] = {}
        self._dead_bytes = 0
        self._cut = self._large = False
        self._failed: List[Tuple[Partition, int, str]] = []
        self._newest: Dict[Partition, int] = {}
        self._open: Dict[Partition, RowPartition] = {}
        self._connected = False

    def run(self, batches: Iterable[pa.RecordBatch]) -> RowsReport:
        """Append until there are no more rows. A broken connection ends it early: the driver then fences and looks."""
        started, fenced, broken = time.monotonic(), False, False
        try:
            self._append(batches, started)
            for partition in self._open.values():
                partition.end()
            self._pump(0)
        except FencedError as error:
            log.warning("%s task %d: %s", self._plan.flow, self._number, error)
            fenced = True
        except Disconnected as error:
            log.warning("%s task %d: %s; its driver looks what is there", self._plan.flow, self._number, error)
            broken = True
        finally:
            self._client.close()
            self._topics.close()
            self._ends.close()
            self._network.close()
        return self._report(fenced, broken, time.monotonic() - started)

    def _append(self, batches: Iterable[pa.RecordBatch], started: float) -> None:
        """Queue and send, until a large row is next, or the pass is full: then no more than what else is made of the
        record that came last, which may be in the next batch."""
        last: Optional[Tuple[Partition, int]] = None
        for batch, large in (before_large(widened(each, self._plan.tasks[0].topic)) for each in batches):
            rows = batch if last is None else made_of(batch, *last)
            others = self._others()
            buried: Set[Partition] = set()
            for stretch in stretches(rows):
                if stretch.source[0] in others:
                    self._stop(stretch.source)
                    continue
                if stretch.source not in buried:  # each stretch of a source partition has all that failed of it
                    buried.add(stretch.source)
                    self._bury(stretch)
                self._take(stretch)
            self._pump(QUEUE_BYTES)
            if last is not None and len(rows) < len(batch):
                self._end_before(last[0], last[1] + 1)
                return
            if large is not None:
                self._end_at_large(large, large.source[0] in others)
                return
            if len(batch) and self._full(started):
                topic, number, offset = (batch.column(name)[-1].as_py() for name in (*SOURCE, "source_offset"))
                last = ((topic, number), offset)

    def _others(self) -> FrozenSet[str]:
        """The topics of which rows that have come may be of another topic that was given the name meanwhile."""
        self._topics.ask()
        # What came before these rows goes on being appended while the answer is under way.
        self._pump(QUEUE_BYTES, self._topics.waits)
        others = self._topics.others()
        if others and self._given.mixed:  # the pass cannot be whole: its driver finds out why
            raise Disconnected(f"{min(others)} was deleted and created again meanwhile")
        if others:
            self._pump(0)  # what was appended of the old topic counts
        return others

    def _stop(self, source: Partition) -> None:
        for partition in map(self._partition, self._tasks.get(source, [])):
            if partition.copy.stopped is None:
                reason = f"{source[0]} was deleted and created again meanwhile"
                partition.copy.stop(reason, partition.copy.acknowledged)

    def _full(self, started: float) -> bool:
        """Whether the pass has lasted or brought enough, also of what its driver is to be told."""
        copies = [partition.copy for partition in self._open.values()]
        most = self._plan.rates.pass_bytes
        written = most is not None and sum(copy.bytes for copy in copies) >= most
        many = sum(len(copy.syncs) for copy in copies) >= self._plan.most_syncs
        over = written or many or self._dead_bytes > DEAD_BYTES
        over = over or time.monotonic() - started >= self._plan.max_seconds
        return over and not self._given.mixed

    def _end_at_large(self, row: LargeRow, of_another: bool) -> None:
        known = self._tasks.get(row.source, [])
        if of_another:
            self._stop(row.source)
        if not known or not all(task.upstream_offset <= row.offset < task.end for task in known):
            self._failed.append((row.source, row.offset, NO_SUCH_PLACE))
            return
        self._large = True
        self._end_before(row.source, row.offset)

    def _end_before(self, source: Partition, offset: int) -> None:
        """End the source partition whose rows came last before this offset; those that came before it are done."""
        for task in self._tasks[source]:
            self._partition(task).end(offset)
        self._cut = True

    def _take(self, stretch: Stretch) -> None:
        if self._given.mixed:
            self._failed += [(stretch.source, *failure) for failure in stretch.failures]
            stretch = stretch._replace(failures=())
            if stretch.rows:
                self._newest[stretch.source] = max(self._newest.get(stretch.source, -1), stretch.rows.newest)
        place = stretch.remote if self._given.mixed else stretch.source
        to, known = stretch.remote, self._tasks.get(place, []) if place is not None else []
        tasks = [task for task in known if to is None or task.remote == to]
        if stretch.rows and not tasks:
            self._failed.append((stretch.source, stretch.rows.first, NO_SUCH_PLACE))
        for task in tasks:
            self._partition(task).take(stretch)

    def _partition(self, task: PartitionTask) -> RowPartition:
        if task.remote not in self._open:
            self._open[task.remote] = self._opened(task)
        return self._open[task.remote]

    def _opened(self, task: PartitionTask) -> RowPartition:
        if not self._connected:
            deadline = time.monotonic() + PATIENCE_SECONDS
            self._client.connect(deadline)
            self._client.refresh_leaders_of({each.remote for each in self._plan.tasks}, deadline)
            self._connected = True
        given = self._given
        opened = RowPartition(
            task,
            self._plan.producers[task.lane],
            given.repeatable,
            given.skips and not given.mixed,
            given.mixed,
            lambda: not given.mixed and (task.remote in given.more_behind or self._ends.more_behind(task)),
            given.unsettled.get(task.remote, ANEW),
        )
        opened.look(self._client, self._own(task))
        return opened

    def _own(self, task: PartitionTask) -> Optional[FrozenSet[int]]:
        """Where others write to the remote topic too: the producer ids of its lane, those of dead lives as well."""
        return self._plan.ids_of(task.lane) if task.shared else None

    def _pump(self, most_bytes: int, waits: Callable[[], bool] = lambda: False) -> None:
        self._sending.until([partition.copy for partition in self._open.values()], most_bytes, waits)

    def _bury(self, stretch: Stretch) -> None:
        """Keep its dead letters for the driver."""
        topic, number = stretch.source
        for record in stretch.dead:
            if (stretch.source, record.offset) in self._dead:
                self._failed.append((stretch.source, record.offset, TWO_FAILED))
            place = (stretch.dead_letters or stretch.source)[1]
            letter = DeadLetter((topic, number, record.offset), place, record.timestamp, record.body)
            self._dead[(stretch.source, record.offset)] = letter
            self._dead_bytes += len(record.body)

    def _report(self, fenced: bool, broken: bool, seconds: float) -> RowsReport:
        copies = [partition.copy for partition in self._open.values()]
        before = (time.time() - self._plan.epoch_kept_seconds) * 1000
        # Before anything else is told of them: what is not proven is taken back here.
        parts = tuple(partition.report(broken or fenced) for partition in self._open.values())
        report = TaskReport(
            task=self._number,
            producers={},
            fenced=fenced,
            partitions=parts,
            syncs=gathered(copy.syncs for copy in copies),
            records=sum(copy.records for copy in copies),
            bytes=sum(copy.bytes for copy in copies),
            re_encoded=sum(copy.re_encoded for copy in copies),
            recovered=sum(partition.recovered for partition in self._open.values()),
            seconds=seconds,
        )
        aged = tuple(copy.remote for copy in copies if copy.forgettable(before))
        dead, failed = tuple(self._dead.values()), tuple(self._failed[:MOST_FAILED])
        left = ((remote, each.unsettled) for remote, each in self._open.items())
        unsettled = tuple((remote, each) for remote, each in left if each is not None)
        return RowsReport(report, broken, aged, dead, failed, self._cut, self._large, unsettled, self._newest)


def nothing_done(number: int) -> RowsReport:
    """What a task says that did not touch its rows."""
    return RowsReport(nothing_copied(number), True, ())

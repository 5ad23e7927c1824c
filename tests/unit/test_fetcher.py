"""Fetch requests: to which broker, how often, for which partitions, under which rate; how responses are read, and what
is demanded of them before offsets count as a gap or a log as ended: one answer is no proof."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple, cast

import pytest
from kafka.future import Future

from mirror_lib.config.values import SIZE
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka import fetcher as fetching
from mirror_lib.kafka import log_reader
from mirror_lib.kafka.connection import Disconnected, LogClient
from mirror_lib.kafka.fetch_quota import FETCH_BYTES, FetchQuota, RateQuota
from mirror_lib.kafka.fetcher import EMPTY_ANSWERS, READ_UNCOMMITTED, Fetched, Fetcher, FetchSchedule, FetchTurns, Gaps
from mirror_lib.kafka.log_reader import LogEntries
from mirror_lib.kafka.wire import FetchAnswer
from mirror_lib.ledger.records import Position
from mirror_lib.replication.messages import TaskPlan, nothing_copied
from mirror_lib.replication.reconcile import Records, reconcile
from mirror_lib.replication.task_plans import FlowRate
from tests.unit.leader import PARTITION, Leader, fetch_answer, part_answer
from tests.unit.logs import Rec, batch_of, marker
from tests.unit.test_legacy import Row, message, wrapper

DATA = batch_of(0, [Rec(b"1"), Rec(b"2")]).raw()


class Part:
    """A partition of the source that the test moves."""

    def __init__(self, source: TopicPartition = PARTITION) -> None:
        self.source = source
        self.fetch_position = 0
        self.wants = True

    def hungry(self) -> bool:
        return self.wants

    def full(self) -> bool:
        return not self.wants


def fetcher_of(leader: Leader) -> Fetcher:
    return Fetcher(leader, READ_UNCOMMITTED, FetchQuota(None), [PARTITION[0]])  # type: ignore[arg-type]


def reported(fetcher: Fetcher, partition: Part) -> List[Tuple[bool, Fetched]]:
    """What one answer means: whether there is a gap, and what was fetched."""
    while not fetcher._in_flight:
        fetcher.look([partition])
        fetcher.pump()
    return [(gap, found) for _, _, gap, found in fetcher.answers()]


def test_records_come_from_the_leader_where_brokers_prefer_another_replica() -> None:
    def answer(position: int, version: int) -> FetchAnswer:
        if version >= fetching.KNOWS_NEAREST:
            return fetch_answer(version, 2, preferred_read_replica=2)
        return fetch_answer(version, 2, DATA)

    fetcher, partition = fetcher_of(Leader(answer)), Part()
    found = [each for _ in range(EMPTY_ANSWERS + 1) for each in reported(fetcher, partition)]
    assert found and all((gap, bytes(each.data)) == (False, DATA) for gap, each in found)


def test_answers_that_only_hold_an_error_are_no_gap() -> None:
    answers = [fetch_answer(13, 4, DATA), *[FetchAnswer(error_code=-1, responses=[])] * EMPTY_ANSWERS]
    fetcher, partition = fetcher_of(Leader(lambda position, version: answers.pop(0))), Part()
    assert [gap for gap, _ in reported(fetcher, partition)] == [False]
    partition.fetch_position = 2
    for _ in range(EMPTY_ANSWERS):
        with pytest.raises(Disconnected):
            reported(fetcher, partition)


def test_fetcher_has_a_request_in_flight_or_reports_how_soon_it_may_send_one() -> None:
    fetcher, partition = fetcher_of(Leader(lambda position, version: fetch_answer(version, 2, DATA))), Part()
    pauses = 0
    for _ in range(200):
        fetcher.look([partition])
        rest = fetcher.pump()
        assert rest == math.inf if fetcher._in_flight else 0 < rest <= fetching.PAUSE_SECONDS
        pauses += not fetcher._in_flight
        list(fetcher.answers())
    assert pauses


@pytest.mark.parametrize(
    ("brought", "least", "most"), [(200, 1, 1 / fetching.PAUSE_SECONDS + 1), (fetching.SMALL_BYTES, 999, 1001)]
)
def test_small_answers_are_followed_by_a_pause_and_a_backlog_is_fetched_without(
    brought: int, least: int, most: float
) -> None:
    """Requests to a broker in a second, each answered after a millisecond."""
    pace, now, count = FetchSchedule(), 0.0, 0
    while now < 1.0:
        wait = pace.wait(1, now)
        if not wait:
            pace.asked(1, now)
            count += 1
            pace.answered(1, brought, False, now + 0.001)
        now += wait or 0.001
    assert least <= count <= most


def test_pause_is_of_one_broker_and_of_small_answers_alone() -> None:
    pace = FetchSchedule()
    pace.asked(1, 0.0)
    pace.answered(1, 200, False, 0.001)
    assert pace.wait(1, 0.001) == fetching.PAUSE_SECONDS - 0.001 and pace.wait(2, 0.001) == 0
    pace.asked(1, 10.0)
    pace.answered(1, 0, False, 10.4)  # the end of a long poll
    assert pace.wait(1, 10.5) == 0


def test_requests_for_all_partitions_of_a_session_take_a_small_part_of_the_time() -> None:
    pace = FetchSchedule()
    for sent, answered, rest in ((0.0, 0.02, round(20 / fetching.WHOLE_SHARE)), (1.0, 3.0, fetching.MAX_WAIT_MS)):
        pace.asked(1, sent)
        pace.answered(1, 0, True, answered)
        assert pace.rest_ms(1, answered) == rest and pace.rest_ms(2, answered) == 0
    assert pace.rest_ms(1, 9.0) == 0


ORDERS, PAYMENTS, REFUNDS = ("orders", 0), ("payments", 0), ("refunds", 0)
ALL = [ORDERS, PAYMENTS, REFUNDS]
Positions = Mapping[TopicPartition, int]
NODE = 1


def ask(turn: FetchTurns, wanted: List[TopicPartition], brief: bool = False) -> Tuple[Positions, int]:
    return turn.next(NODE, dict.fromkeys(wanted, 0), brief, False)


def turns(turn: FetchTurns, times: int, wanted: List[TopicPartition]) -> List[List[TopicPartition]]:
    return [list(ask(turn, wanted)[0]) for _ in range(times)]


def test_partition_without_records_below_its_end_is_asked_for_alone_until_it_has_an_answer() -> None:
    turn = FetchTurns(lambda _: False)
    turn.answered(ALL, [], {PAYMENTS})
    assert ask(turn, ALL) == ({PAYMENTS: 0}, 0)
    turn.answered([PAYMENTS], [PAYMENTS], set())
    assert turns(turn, 1, ALL) == [[ORDERS, REFUNDS, PAYMENTS]]


def test_partitions_that_wait_for_tiered_storage_take_turns() -> None:
    stored: Set[TopicPartition] = {ORDERS, PAYMENTS}
    turn = FetchTurns(stored.__contains__)
    turn.answered(ALL, [], stored)
    assert turns(turn, 4, ALL) == [[ORDERS], [REFUNDS], [PAYMENTS], [REFUNDS]]
    assert ask(turn, ALL, brief=True) == ({ORDERS: 0}, fetching.MAX_WAIT_MS)


def gaps_reported(gaps: Gaps, times: int, position: int = 40) -> List[bool]:
    """Of so many answers without data."""
    return [gaps.answered(PARTITION, position, empty=True) for _ in range(times)]


@pytest.mark.parametrize("local_start", [-1, 0, 40])
def test_offsets_are_a_gap_after_several_empty_answers_about_what_the_leader_stores_itself(local_start: int) -> None:
    assert gaps_reported(Gaps(lambda _: local_start), EMPTY_ANSWERS) == [False] * (EMPTY_ANSWERS - 1) + [True]


def test_empty_answers_about_tiered_storage_are_no_gap_and_others_count_for_one_position_in_a_row() -> None:
    tiered = Gaps(lambda _: 41)
    assert not any(gaps_reported(tiered, 50)) and tiered.stored(PARTITION)
    assert not tiered.answered(PARTITION, 40, empty=False) and not tiered.stored(PARTITION)
    gaps = Gaps(lambda _: -1)
    assert not any(gaps_reported(gaps, EMPTY_ANSWERS - 1, 40) + gaps_reported(gaps, EMPTY_ANSWERS - 1, 41))
    gaps.answered(PARTITION, 41, empty=False)
    assert not any(gaps_reported(gaps, EMPTY_ANSWERS - 1, 41))


TOPIC = "orders"
PARTITIONS = fetching.SESSION_FROM_PARTITIONS + 20
SESSION_ID = 7


class Broker(Leader):
    """Keeps a fetch session as KIP-227 says, and answers at once."""

    def __init__(self, chance: random.Random, tiered: bool) -> None:
        self._chance = chance
        self._local_start = 10**9 if tiered else 0
        self.session: Dict[TopicPartition, int] = {}
        self.asked: Dict[TopicPartition, int] = {}  # by the last request
        self.ends: Dict[TopicPartition, int] = {}

    def call(self, node: int, request: Any) -> Any:
        part = SimpleNamespace(error_code=0, offset=self._local_start)
        return SimpleNamespace(version=fetching.KNOWS_TIERED_STORAGE, topics=[SimpleNamespace(partitions=[part])])

    def send(self, node: int, request: Any) -> Any:
        positions = {
            (topic.topic, part.partition): part.fetch_offset for topic in request.topics for part in topic.partitions
        }
        if request.session_epoch == fetching.NO_EPOCH:
            self.asked = positions
            return Future().success(FetchAnswer(responses=self._brought()))
        if self._chance.random() < 0.05:
            self.session, self.asked = {}, {}
            return Future().success(FetchAnswer(error_code=fetching.FORGOTTEN[0], responses=[]))
        if request.session_epoch == fetching.FIRST_EPOCH:
            self.session = {}
        self.session.update(positions)
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                del self.session[(topic.topic, number)]
        self.asked = dict(self.session)
        time.sleep(0.002)  # as a broker that walks many
        return Future().success(FetchAnswer(session_id=SESSION_ID, responses=self._brought()))

    def _brought(self) -> List[Any]:
        """The data of partitions that were written to; some have none before their end, and are asked for alone."""
        for each in self._chance.sample(sorted(self.asked), min(3, len(self.asked))):
            self.ends[each] = self.ends.get(each, 0) + 100
        parts = [self._part(each, at) for each, at in self.asked.items()]
        return [FetchAnswer.FetchableTopicResponse(topic=TOPIC, partitions=parts)]

    def _part(self, partition: TopicPartition, at: int) -> Any:
        end = self.ends.get(partition, 0)
        brought = (end - at) * (self._chance.random() < 0.9)
        return part_answer(partition[1], end, bytes(brought))


@pytest.mark.parametrize(("seed", "tiered"), [(seed, seed % 2 == 1) for seed in range(6)])
def test_requests_name_the_wanted_partitions_at_their_positions(seed: int, tiered: bool) -> None:
    chance = random.Random(seed)
    broker, parts = Broker(chance, tiered), [Part((TOPIC, number)) for number in range(PARTITIONS)]
    fetcher = Fetcher(broker, READ_UNCOMMITTED, FetchQuota(None), [TOPIC])  # type: ignore[arg-type]
    fetcher.look(parts)
    whole = 0
    for _ in range(100):
        while not fetcher._in_flight:
            fetcher.pump()
        wanted = {part.source: part.fetch_position for part in parts if part.wants}
        assert broker.asked.items() <= wanted.items()
        if len(broker.asked) >= fetching.SESSION_FROM_PARTITIONS:
            whole += 1
            # Only partitions that wait for tiered storage are left out.
            assert tiered or broker.asked == wanted
        for (_, number), _, gap, found in fetcher.answers():
            parts[number].fetch_position = found.end if gap else parts[number].fetch_position + len(found.data)
            fetcher.look([parts[number]])
        moved = chance.sample(parts, chance.randrange(4))
        for part in moved:
            part.wants = chance.random() < 0.8
        fetcher.look(moved)
    assert 0 < whole < 100


END = 6
LOG = [batch_of(0, [Rec(b"a")] * 3), batch_of(3, [Rec(b"b")] * 3)]


def read(empty: List[int], gap_from: int = END) -> List[int]:
    """Base offsets that are read of a log where the fetches with the numbers in `empty` are answered without data, and
    which has no record from `gap_from` on. The end is right in every answer."""
    asked: List[int] = []

    def answer(position: int, version: int) -> FetchAnswer:
        asked.append(position)
        here = [each for each in LOG if each.base <= position < each.next and each.base < gap_from]
        data = b"" if len(asked) - 1 in empty or not here else here[0].raw()
        return fetch_answer(version, END, data)

    log = LogEntries(cast(LogClient, Leader(answer)), PARTITION, 0, READ_UNCOMMITTED)
    found = [header.base_offset for _, header, _ in log if header is not None]
    assert log.end == END
    return found


@pytest.mark.parametrize(
    ("empty", "gap_from", "found"),
    [
        *((empty, END, [0, 3]) for empty in ([], [0], [1], [0, 1], [0, 3])),
        # Offsets are without a record after as many empty answers as the fetcher demands.
        ([], 3, [0]),
        (list(range(EMPTY_ANSWERS)), END, []),
    ],
)
def test_records_after_an_empty_answer_are_read(empty: List[int], gap_from: int, found: List[int]) -> None:
    assert read(empty, gap_from) == found


@pytest.mark.parametrize("throttle_ms", [0, 1000], ids=["an error alone", "throttled for ever"])
def test_answers_without_the_partition_are_not_the_end_of_the_log(
    throttle_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "THROTTLED_SECONDS", 0.1)
    until = time.monotonic() + 5

    def answer(position: int, version: int) -> FetchAnswer:
        assert time.monotonic() < until, "the reader asks for ever"
        return FetchAnswer(throttle_time_ms=throttle_ms, error_code=0 if throttle_ms else -1, responses=[])

    with pytest.raises(Disconnected):
        next(LogEntries(cast(LogClient, Leader(answer)), PARTITION, 0, READ_UNCOMMITTED))


ROWS: List[Row] = [(1_000 + number, b"k", b"value %d" % (number % 2)) for number in range(7)]
# By the last offset of each entry, as brokers find them; every answer holds one.
OLD: Dict[int, bytes] = {
    0: message(0, 1, 0, ROWS[0]),
    1: message(1, 1, 0, ROWS[1]),
    4: wrapper(4, 1, 1, b"".join(message(number, 1, 0, ROWS[2 + number]) for number in range(3))),
    6: wrapper(6, 0, 1, b"".join(message(number, 0, 0, ROWS[number]) for number in (5, 6))),
}


def entries_of(log: Dict[int, bytes]) -> LogEntries:
    end = max(log) + 1

    def answer(position: int, version: int) -> FetchAnswer:
        assert version < fetching.KNOWS_NEAREST  # a later one may be sent to another replica
        return fetch_answer(version, end, next((raw for last, raw in log.items() if last >= position), b""))

    return LogEntries(Leader(answer), PARTITION, 0, READ_UNCOMMITTED)  # type: ignore[arg-type]


def test_what_a_killed_attempt_wrote_of_old_messages_is_found() -> None:
    copied = [Rec(value, key, timestamp if number < 5 else -1) for number, (timestamp, key, value) in enumerate(ROWS)]
    remote = entries_of({4: batch_of(0, copied[:5]).raw(), 6: batch_of(5, copied[5:]).raw(), 7: marker(7).raw()})
    source = entries_of(OLD)
    logs = Records(source, 0), Records(remote, 0)
    found = reconcile(*logs, "A.orders-0", Position(0, 0), lambda: source.end)
    assert sum(match.record_count for match in found) == len(ROWS)
    assert remote.end == len(ROWS) + 1


MB = 1_000_000


class Clock:
    """Stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def plans(tasks: int) -> List[TaskPlan]:
    return [TaskPlan(number, "A->B", {}, {}, (), "A", "B", {}, {}) for number in range(tasks)]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("none", None), ("50000000", 50_000_000), ("50 MB", 50_000_000), ("50mb", 50_000_000)),
        *(("1.5 GB", 1_500_000_000), ("512 KiB", 524_288), ("1 B", 1)),
        *((text, ...) for text in ("", "0", "-1", "5 M", "5 megabytes", "5 MB/s", "many", "0.0001 KB")),
    ],
)
def test_sizes_are_read_or_refused(text: str, size: Any) -> None:
    if size is ...:
        with pytest.raises(ValueError, match="must be"):
            SIZE.parse(text)
    else:
        assert SIZE.parse(text) == size


class Stages:
    """Stages of tasks with the quotas of a flow, over a source that always has more, in steps of a simulated clock.

    `arrivals` are the times and sizes of all answers.
    """

    def __init__(self, tasks: int, rate: int, batch: int = 64_000) -> None:
        self.clock = Clock()
        self.rate = FlowRate(rate, self.clock)
        self.plans = plans(tasks)
        self.batch, self.step = batch, 0.02
        self.arrivals: List[Tuple[float, int]] = []

    def run(self, seconds: float, starting: float = 0.0, fails: bool = False, idle: Sequence[int] = ()) -> None:
        """One stage; its tasks start late by `starting`, none reports if it fails, and some have nothing to do."""
        shared = self.rate.shared(self.plans)
        self.clock.now += starting
        quotas = [FetchQuota(each.rate, False, self.clock) for each in shared]
        until = self.clock.now + seconds
        while self.clock.now < until:
            for quota in (quota for number, quota in enumerate(quotas) if number not in idle):
                granted = quota.grant(1)
                if granted:
                    nbytes = granted // self.batch * self.batch or self.batch
                    quota.settle(granted, nbytes)
                    self.arrivals.append((self.clock.now, nbytes))
            self.clock.now += self.step
        if not fails:
            self.rate.learn([replace(nothing_copied(0), balance=quota.balance()) for quota in quotas])

    def mean(self) -> float:
        return sum(nbytes for _, nbytes in self.arrivals) / (self.clock.now - Clock.now)

    def most_above(self, rate: float) -> float:
        """The most bytes that arrived in any span beyond `rate` times its length."""
        above = lowest = most = 0.0
        for at, nbytes in self.arrivals:
            lowest = min(lowest, above - rate * at)
            above += nbytes
            most = max(most, above - rate * at - lowest)
        return most


@pytest.mark.parametrize("tasks", [1, 2, 5])
@pytest.mark.parametrize("rate", [MB, 20 * MB, 100 * MB])
def test_stages_one_after_the_other_fetch_what_the_rate_allows_and_no_more(tasks: int, rate: int) -> None:
    """A flow got about half of its rate: a stage of ten seconds was paid for out of one second of the rate."""
    stages = Stages(tasks, rate)
    for _ in range(12):
        stages.run(10.0, starting=0.3)
        stages.clock.now += 0.4  # the commit
    assert stages.mean() >= 0.9 * min(rate, tasks * 16 * 1024 * 1024 / stages.step)
    assert stages.most_above(rate) <= rate + tasks * stages.batch


def test_idle_tasks_and_failed_stages_keep_the_rate() -> None:
    rate = 10 * MB
    idle, failing = Stages(4, rate), Stages(2, rate)
    for number in range(10):
        idle.run(10.0, idle=[1, 2, 3] if number < 5 else [])
        failing.run(2.0, fails=number % 2 == 0)
    assert idle.most_above(rate) <= rate + 4 * idle.batch
    assert failing.mean() >= 0.8 * rate and failing.most_above(rate) <= rate + 20 * failing.batch


def test_batch_larger_than_a_second_of_the_rate_is_paid_for_by_the_next_stages() -> None:
    stages = Stages(1, MB, batch=30 * MB)
    for _ in range(30):
        stages.run(2.0)
    assert len(stages.arrivals) == 2


def quota_of(clock: Clock, rate: float, balance: float = 0.0, retried: bool = False) -> FetchQuota:
    return FetchQuota(RateQuota(rate, balance), retried, clock)


def test_attempt_after_a_failed_one_has_nothing_saved_up_but_owes_what_was_owed() -> None:
    assert quota_of(Clock(), MB, balance=MB).grant(1) > 0
    assert quota_of(Clock(), MB, balance=MB, retried=True).grant(1) == 0
    clock = Clock()
    owing = quota_of(clock, MB, balance=-2.0 * MB, retried=True)
    clock.now += 2
    assert owing.grant(1) == 0


def test_broker_that_has_nothing_does_not_keep_the_rate_from_another() -> None:
    clock = Clock()
    quota, brought = quota_of(clock, MB), 0
    clock.now += 10
    assert quota.grant(2)  # asked, and not answered
    for _ in range(200):
        granted = quota.grant(2)
        if granted:
            quota.settle(granted, granted)
            brought += granted
        clock.now += 0.05
    assert brought >= 9 * MB


def test_request_over_a_broken_connection_reserves_nothing_and_without_a_rate_answers_have_their_full_size() -> None:
    clock = Clock()
    quota = quota_of(clock, MB)
    clock.now += 10
    assert quota.grant(1) and not quota.grant(1)
    quota.forget_asked()
    assert quota.grant(1)
    unlimited = FetchQuota(None, False, Clock())
    assert unlimited.grant(3) == unlimited.grant(3) == FETCH_BYTES

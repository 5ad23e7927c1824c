"""What MirrorMaker 2's own readers make of the records that are emitted for them: no one is led past a record."""

from __future__ import annotations

from typing import Dict, Iterable, List, Mapping, Optional, Set, Tuple

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.groups.mm2_format import Checkpoint, PointSync, encode_checkpoint, encode_offset_sync
from mirror_lib.groups.mm2_topics import OURS, CheckpointBook, OffsetSyncBook, synced_by
from mirror_lib.kafka.record_batch import encode_varint
from mirror_lib.kafka.reencoder import NO_HEADERS, Record
from mirror_lib.ledger.intervals import PartitionMap
from tests.unit.offset_histories import History, Triple, histories

ORDERS = ("orders", 0)


def checkpoint(upstream: int, downstream: int, metadata: str = "", group: str = "g") -> Checkpoint:
    return Checkpoint(group, "A.orders", 0, upstream, downstream, metadata)


def record(made: Checkpoint, headers: bytes) -> Record:
    parts = (part for each in encode_checkpoint(made) for part in (encode_varint(len(each)), each))
    return Record(0, 0, b"".join(parts) + headers)


def test_every_checkpoint_of_mirrormaker_names_an_offset_that_it_may_have_committed_and_none_of_our_own_does() -> None:
    older, newest, ours = checkpoint(250, 201), checkpoint(260, 205, "m"), checkpoint(270, 210)
    found = synced_by([record(older, NO_HEADERS), record(newest, NO_HEADERS), record(ours, OURS)])
    assert found == {("g", "A.orders", 0, CommittedOffset(201)), ("g", "A.orders", 0, CommittedOffset(205, "m"))}


@pytest.mark.parametrize(
    ("now", "emitted"),
    [
        pytest.param(checkpoint(250, 201), False, id="the same again"),
        pytest.param(checkpoint(260, 201), False, id="went on over records that do not exist downstream"),
        pytest.param(checkpoint(250, 205), True, id="advanced downstream"),
        pytest.param(checkpoint(249, 200), True, id="reset to an earlier offset"),
        pytest.param(checkpoint(250, 199), True, id="an earlier checkpoint is no longer true"),
        pytest.param(checkpoint(260, 199), True, id="an earlier checkpoint would pass records"),
        pytest.param(checkpoint(10, 10, group="other"), True, id="first of another group"),
    ],
)
def test_checkpoint_is_emitted_when_it_says_something_new(now: Checkpoint, emitted: bool) -> None:
    book = CheckpointBook.of(dict([encode_checkpoint(checkpoint(250, 201))]))
    records, after = book.emit([now])
    assert records == ((now,) if emitted else ())
    assert after.emit([now])[0] == ()


def test_checkpoints_carry_metadata_and_the_book_before_stays_as_it_was() -> None:
    empty = CheckpointBook.of({})
    records, _ = empty.emit([checkpoint(1, 1, "a"), checkpoint(2, 2, "b"), checkpoint(2, 2, "c")])
    assert [record.metadata for record in records] == ["a", "b"]
    assert empty == CheckpointBook({})


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))), st.integers(0, 9))
def test_restart_from_what_the_topic_holds_emits_what_one_life_would(
    positions: List[Tuple[int, int]], cut: int
) -> None:
    wanted = [checkpoint(*position) for position in positions]
    whole, _ = CheckpointBook.of({}).emit(wanted)
    first, _ = CheckpointBook.of({}).emit(wanted[:cut])
    second, _ = CheckpointBook.of(dict(map(encode_checkpoint, first))).emit(wanted[cut:])
    assert (*first, *second) == whole


class OffsetSyncStore:
    """MirrorMaker 2's store of one partition (3.5 and later): 64 syncs, the farther back the sparser."""

    SLOTS = 64

    def __init__(self) -> None:
        self.syncs: List[PointSync] = []

    def add(self, new: PointSync, forget: bool = False) -> None:
        if forget or not self.syncs or new.upstream_offset < self.syncs[0].upstream_offset:
            self.syncs = [new] * self.SLOTS
        else:
            self._insert(new)

    def _insert(self, new: PointSync) -> None:
        old, s = list(self.syncs), self.syncs
        s[0] = replacement = new
        r = 0
        for current in range(1, self.SLOTS):
            while True:
                v = old[r]
                recent = self._near(s[current - 1], v, current - 1, current)
                apart_before = self._apart(s[current - 1], v, current - 1)
                apart_after = current == self.SLOTS - 1 or self._apart(v, s[current + 1], current)
                promote = recent and apart_before and apart_after
                skip = (r < self.SLOTS - 1 and v is old[r + 1]) or not apart_before
                if promote:
                    replacement = v
                if promote or skip:
                    r += 1
                if not (r < current and skip):
                    break
            if self._near(s[current - 1], s[current], current - 1, current):
                break
            s[current] = replacement

    @staticmethod
    def _near(a: PointSync, b: PointSync, i: int, j: int) -> bool:
        bound = b.upstream_offset + (1 << j) - (1 << i)
        return bound >= 2**63 or a.upstream_offset <= bound

    @staticmethod
    def _apart(a: PointSync, b: PointSync, i: int) -> bool:
        bound = b.upstream_offset + (1 << max(i - 2, 0))
        return bound < 2**63 and a.upstream_offset >= bound

    def translate(self, upstream: int) -> int:
        """The nearest sync at or before `upstream`: its downstream offset, or one past it; -1 where there is none."""
        for sync in self.syncs:
            if sync.upstream_offset <= upstream:
                return sync.downstream_offset + (sync.upstream_offset < upstream)
        return -1


@pytest.mark.parametrize(
    ("forget", "kept"),
    [
        (True, {1000, 4840, 6760, 8680, 9160, 9640, 9880, 9940, 9970, 9990, 10000}),
        (False, {0, 3840, 7680, 8640, 9120, 9600, 9840, 9900, 9960, 9990, 10000}),
    ],
)
def test_store_keeps_the_syncs_that_mirrormakers_own_test_names(forget: bool, kept: Set[int]) -> None:
    store = OffsetSyncStore()
    for upstream in range(0, 10_001, 10):
        store.add(PointSync("t", 0, upstream, upstream), forget and upstream <= 1000)
    assert {sync.upstream_offset for sync in store.syncs} == kept


def test_store_translates_as_mirrormakers_own_test_says() -> None:
    store = OffsetSyncStore()
    assert store.translate(0) == -1
    for reported, asked in (
        ((100, 200), {150: 201, 5: -1}),
        ((150, 251), {150: 251, 5: -1}),
        ((200, 10), {200: 10}),
        ((20, 20), {20: 20}),
    ):
        store.add(PointSync("t", 0, *reported))
        assert {upstream: store.translate(upstream) for upstream in asked} == asked


class Topic:
    """The offset syncs topic as its reader meets it: every record, and the last of each key after compaction."""

    def __init__(self) -> None:
        self.store = OffsetSyncStore()
        self.latest: Dict[bytes, bytes] = {}
        self.upstream: List[int] = []

    def emit(self, rows: Iterable[Triple]) -> OffsetSyncBook:
        """What a translator that has just started adds when it finds `rows` in the ledger."""
        syncs, after = OffsetSyncBook.of(self.latest).emit({ORDERS: PartitionMap.of(rows)})
        self.append(syncs)
        return after

    def append(self, syncs: Iterable[PointSync]) -> None:
        for sync in syncs:
            self.store.add(sync)
            self.latest.update([encode_offset_sync(sync)])
            self.upstream.append(sync.upstream_offset)


def skipped(history: History, store: OffsetSyncStore) -> Optional[int]:
    """An upstream offset that MirrorMaker translates past a record that is unread there."""
    for g in range(history.end[0] + 4):
        answer = store.translate(g)
        if answer >= 0 and not set(history.read_upstream(g)) <= set(history.read_downstream(answer)):
            return g
    return None


@given(histories(most_passes=8), st.data())
def test_mirrormakers_translation_of_our_syncs_passes_no_record(history: History, data: st.DataObject) -> None:
    topic = Topic()
    for known in sorted(data.draw(st.sets(st.integers(1, len(history.rows)), max_size=5)) | {len(history.rows)}):
        after = topic.emit(history.rows[:known])
        assert after == OffsetSyncBook.of(topic.latest)
        assert skipped(history, topic.store) is None
    assert topic.upstream == sorted(set(topic.upstream))
    reported = list(topic.upstream)
    topic.emit(history.rows)
    assert topic.upstream == reported, "nothing is emitted twice"


@given(histories())
def test_mirrormaker_is_exact_at_the_first_and_behind_the_last_record_of_a_run(history: History) -> None:
    topic = Topic()
    topic.emit(history.rows)
    for upstream, downstream, count in PartitionMap.of(history.rows).runs_from(0):
        assert upstream in topic.upstream and upstream + count - 1 in topic.upstream
        newest = upstream + count - 1 == max(history.copied)
        if newest:
            assert topic.store.translate(upstream + count) == downstream + count


@given(histories(), histories())
def test_syncs_of_a_remote_topic_that_was_created_anew_replace_the_old_ones(old: History, new: History) -> None:
    if len(new.copied) < 2 or not _contradict(old, new):
        return
    topic = Topic()
    topic.emit(old.rows)
    topic.emit(new.rows)
    assert skipped(new, topic.store) is None


def _contradict(old: History, new: History) -> bool:
    """Whether the new map does not simply continue the old one: then no reader could see that it is another."""
    last = max(old.copied.items(), default=None)
    return last is not None and new.copied.get(last[0]) != last[1] and last[1] >= min(new.copied.values())


def test_book_knows_other_partitions_apart() -> None:
    maps: Mapping[TopicPartition, PartitionMap] = {
        ORDERS: PartitionMap.of([(0, 0, 3)]),
        ("orders", 1): PartitionMap.of([(5, 0, 1)]),
        ("empty", 0): PartitionMap.of([(0, 0, 0)]),
    }
    syncs, after = OffsetSyncBook({}).emit(maps)
    assert list(syncs) == [PointSync(*ORDERS, 0, 0), PointSync(*ORDERS, 2, 2), PointSync("orders", 1, 5, 0)]
    assert after.last == {ORDERS: PointSync(*ORDERS, 2, 2), ("orders", 1): PointSync("orders", 1, 5, 0)}


def test_syncs_that_are_not_true_are_caught_by_the_same_check() -> None:
    """The negative control: each run's last record is said to lie one further."""

    def misled(history: History) -> bool:
        topic = Topic()
        syncs, _ = OffsetSyncBook({}).emit({ORDERS: PartitionMap.of(history.rows)})
        topic.append(PointSync(*ORDERS, sync.upstream_offset, sync.downstream_offset + 1) for sync in syncs)
        return skipped(history, topic.store) is not None

    find(histories(), misled)

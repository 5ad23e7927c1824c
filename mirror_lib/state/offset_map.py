"""The offset syncs of one partition, read as a map between its two logs. Pure: offset syncs in, offset syncs out.

A run is an offset sync with a count above 0; a position is one with a count of 0 (`mirror_lib.state.records`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import islice
from typing import Iterable, Iterator, Optional, Sequence, Tuple

from mirror_lib.errors import StateError
from mirror_lib.state.records import SYNC_BYTES, OffsetSync, OffsetSyncs, packed


def merge_runs(syncs: Sequence[OffsetSync]) -> Tuple[OffsetSync, ...]:
    """Join the syncs of one partition into the fewest that say the same, in offset order on both sides.

    Any order in; rows stated twice or overlapping are taken once. A position stays where it is the first or the last
    word, since between two runs it says nothing that they do not. Raises StateError where rows contradict each other:
    one upstream offset at two downstream offsets, or records out of order.
    """
    return tuple(_merged(sorted(syncs, key=_place)))


def merge_packed(syncs: OffsetSyncs) -> OffsetSyncs:
    """The same of as many as there may be of a log full of gaps."""
    in_order = all(first <= second for first, second in zip(syncs.triples(), islice(syncs.triples(), 1, None)))
    return packed(syncs.topic, syncs.partition, _merged(syncs if in_order else sorted(syncs, key=_place)))


def _place(sync: OffsetSync) -> Tuple[int, int, int]:
    return sync.upstream_offset, sync.downstream_offset, sync.record_count


def _merged(in_order: Iterable[OffsetSync]) -> Iterator[OffsetSync]:
    last: Optional[OffsetSync] = None
    is_first = True
    for sync in in_order:
        if last is None:
            last = sync
        elif _on_one_line(last, sync):
            last = _joined(last, sync)
        else:
            _refuse_contradiction(last, sync)
            if last.record_count or is_first:
                yield last
                is_first = False
            last = sync
    if last is not None:
        yield last


def _on_one_line(first: OffsetSync, second: OffsetSync) -> bool:
    same_shift = second.upstream_offset - first.upstream_offset == second.downstream_offset - first.downstream_offset
    return same_shift and second.upstream_offset <= upstream_end(first)


def _joined(first: OffsetSync, second: OffsetSync) -> OffsetSync:
    return replace(first, record_count=max(upstream_end(first), upstream_end(second)) - first.upstream_offset)


def _refuse_contradiction(first: OffsetSync, second: OffsetSync) -> None:
    if second.upstream_offset < upstream_end(first) or second.downstream_offset < downstream_end(first):
        goes_back = second.downstream_offset >= downstream_end(first)
        truncated = "; the source was truncated there, if an incident `data lost` says so" if goes_back else ""
        place = f"{first.topic}-{first.partition}"
        raise StateError(
            f"the ledger contradicts itself on {place}: {_words(first)}, yet {_words(second)}{truncated}",
            "if two drivers ran at once under an earlier release, `mirror repair` shows and removes such positions; the"
            " table was changed by hand, or two mirrors of different names wrote to one remote topic: `mirror verify`"
            " shows whether the remote log is right",
        )


def _words(sync: OffsetSync) -> str:
    return (
        f"{sync.record_count} records from upstream offset {sync.upstream_offset}"
        f" lie at downstream offset {sync.downstream_offset}"
    )


def upstream_end(sync: OffsetSync) -> int:
    """The upstream offset after the last record of `sync`."""
    return sync.upstream_offset + sync.record_count


def downstream_end(sync: OffsetSync) -> int:
    """The downstream offset after the last record of `sync`."""
    return sync.downstream_offset + sync.record_count


def downstream_of(runs: Sequence[OffsetSync], upstream_offset: int) -> Optional[int]:
    """Where the first record at or after `upstream_offset` lies downstream; the downstream end if there is none yet.

    `runs` as `merge_runs` returns them; `None` if there are none.
    """
    if not runs:
        return None
    index = last_begun(runs, upstream_offset)
    if index >= 0 and upstream_offset < upstream_end(runs[index]):
        return runs[index].downstream_offset + upstream_offset - runs[index].upstream_offset
    return runs[index + 1].downstream_offset if index + 1 < len(runs) else downstream_end(runs[-1])


def last_begun(runs: Sequence[OffsetSync], upstream_offset: int) -> int:
    """Which of `runs` is the last that begins at or before `upstream_offset`; -1 if none does."""
    return bisect_right([run.upstream_offset for run in runs], upstream_offset) - 1


@dataclass(frozen=True)
class CutRuns:
    """`runs` that both logs can still hold, and how many records were cut off at the front because one log cannot.

    A record that both logs have lost counts as expired upstream.
    """

    runs: OffsetSyncs
    expired_upstream: int
    expired_downstream: int


def cut_front(runs: OffsetSyncs, upstream_start: int, downstream_start: int) -> CutRuns:
    """Drop what lies before either log's start offset. `runs` as `merge_packed` returns them."""
    expired_upstream = expired_downstream = 0
    for number, run in enumerate(runs):
        before_upstream = _clamped(upstream_start - run.upstream_offset, run.record_count)
        before_downstream = _clamped(downstream_start - run.downstream_offset, run.record_count)
        gone = max(before_upstream, before_downstream)
        expired_upstream += before_upstream
        expired_downstream += gone - before_upstream
        if gone < run.record_count or _still_a_position(run, upstream_start, downstream_start):
            # What comes behind it lies beyond both starts.
            first = packed(runs.topic, runs.partition, [_without_front(run, gone)])
            kept = replace(runs, flat=first.flat + runs.flat[SYNC_BYTES * (number + 1) :])
            return CutRuns(kept, expired_upstream, expired_downstream)
    return CutRuns(replace(runs, flat=b""), expired_upstream, expired_downstream)


def _clamped(count: int, most: int) -> int:
    return min(max(count, 0), most)


def _still_a_position(run: OffsetSync, upstream_start: int, downstream_start: int) -> bool:
    if run.record_count:
        return False
    return run.upstream_offset >= upstream_start and run.downstream_offset >= downstream_start


def _without_front(run: OffsetSync, count: int) -> OffsetSync:
    return replace(
        run,
        upstream_offset=run.upstream_offset + count,
        downstream_offset=run.downstream_offset + count,
        record_count=run.record_count - count,
    )

"""What an interrupted attempt managed to write: the end of the remote log in, offset syncs and positions out.

The remote log is believed only where its records equal the source's, in order. Records that compaction has removed
since then, from either log, are allowed for by their offsets, which it keeps; anything else is refused. Pure.
"""

from __future__ import annotations

from typing import Iterator, List, Optional

from mirror_lib.log.batch import HEADER_SIZE
from mirror_lib.replicate.cleaned import Cleaned, Lost, SourceEnd, Survivors, refuse_lost
from mirror_lib.replicate.log_records import Match, Records
from mirror_lib.state.records import Position

# Attributes that make records mean something else: codec (0-2) and timestamp type (3).
_MEANING = 0x0F


def reconcile(
    source: Records, remote: Records, name: str, start: Position, source_end: SourceEnd, lost: Lost = refuse_lost
) -> Iterator[Match]:
    """Match every record of the remote range, which starts at `start`, with its source record.

    `source_end` tells the end of the source's log once all of it was read; `lost` is called where the source's cleaner
    took the last word on a key before it was copied. Raises `RefusedError` naming `name` and the downstream offset
    where the remote log holds something else.
    """
    cleaned = Cleaned(Survivors(source, start.upstream_offset, source_end), name)
    expected, held = start.downstream_offset, []
    while True:
        pair = _same_batch(source, remote, expected) if cleaned.nothing_awaited() else None
        if pair is not None:
            cleaned.passed(pair)
            found: List[Match] = [pair]
        else:
            copy = remote.record()
            if copy is None:
                break
            found = cleaned.match(copy, copy.offset - expected - remote.not_data, remote.log_append_time)
        if found:
            remote.not_data = 0
            expected = found[-1].downstream_offset + found[-1].record_count
        held.extend(found)
        if cleaned.nothing_suspect():
            yield from held
            held = []
    # The last records of the last batch may be gone from the remote log (old tombstones). Which ones they were cannot
    # be known, as the source may have lost them too: those it still has are copied again, or new ones could be passed.
    held.extend(cleaned.end(lost))
    yield from held


def _same_batch(source: Records, remote: Records, expected: int) -> Optional[Match]:
    """Both next batches, taken, if one is the other re-headed: no record needs to be decoded."""
    ours = remote.batch()
    theirs = None if ours is None else source.batch()  # not asked for where there is nothing to compare
    if theirs is None or ours is None or theirs[1] is None or ours[1] is None:
        return None
    header, copied = theirs[1], ours[1]
    if not (header.can_rehead and copied.contiguous) or copied.base_offset - remote.not_data != expected:
        return None
    if (header.attributes ^ copied.attributes) & _MEANING or header[6:9] != copied[6:9]:
        return None
    if theirs[0][HEADER_SIZE:] != ours[0][HEADER_SIZE:]:
        return None
    source.drop_batch()
    remote.drop_batch()
    return Match(header.base_offset, copied.base_offset, header.record_count)

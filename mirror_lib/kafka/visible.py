"""Which record batches of a fetched range a reader of that isolation level would be given."""

from __future__ import annotations

from typing import Iterator, Optional, Set, Tuple

from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.record_batch import CONTROL, TRANSACTIONAL, BatchHeader, split_entries

Entry = Tuple[memoryview, Optional[BatchHeader], bool]


def entries(found: Fetched) -> Iterator[Entry]:
    """Each whole entry as `(raw, header, is_data)`; the header is None for message sets of magic 0 and 1.

    Control batches and batches of aborted transactions are not data. The aborted transactions that come with a fetch
    answer cover all that touch its range, so each answer is judged by itself (KIP-98, "Reading Transactions").
    """
    pending = list(found.aborted)
    aborted: Set[int] = set()
    for raw, header in split_entries(found.data):
        if header is None:
            yield raw, None, True
            continue
        while pending and pending[0][1] <= header.last_offset:
            aborted.add(pending.pop(0)[0])
        if not header.attributes & (CONTROL | TRANSACTIONAL):
            yield raw, header, True
        elif header.control:
            aborted.discard(header.producer_id)
            yield raw, header, False
        else:
            yield raw, header, header.producer_id not in aborted

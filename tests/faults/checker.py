"""The judge: what stands on both sides after a case, in Jepsen's words. It shares no code with what copied.

Every record says in its value which it is, `PARTITION:NUMBER:` with the number that it has among the ones of its source
partition, so that a reader needs nothing of the product to tell a lost record from a doubled one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import AbstractSet, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from tests.lab.readers import Log, LogRecord, origin_of

# Source partition, number in it.
Id = Tuple[int, int]


@dataclass(frozen=True)
class Verdict:
    """What one reader of the remote topic finds, in records.

    `lost`: a later record of its source partition was copied, and it was not. `unseen`: neither it nor a later one was
    copied by the end of the wait. `doubled`: copies beyond the first. `reordered`: first copies that lie behind a later
    record's. `foreign`: not committed on the source, or in another partition. `changed`: another key, value, header or
    time.
    """

    records: int
    lost: int
    unseen: int
    doubled: int
    reordered: int
    foreign: int
    changed: int

    @property
    def exact(self) -> bool:
        """Each record once, in order, unchanged, and nothing else."""
        return not any(count for name, count in asdict(self).items() if name != "records")

    def __str__(self) -> str:
        wrong = [f"{count} {name}" for name, count in asdict(self).items() if name != "records" and count]
        return f"{self.records} records, {', '.join(wrong) or 'exact'}"


def id_of(record: LogRecord) -> Optional[Id]:
    """Which record it is; `None` for one that no load has written."""
    partition, _, rest = (record.value or b"").partition(b":")
    number = rest.partition(b":")[0]
    return (int(partition), int(number)) if partition.isdigit() and number.isdigit() else None


def judge(
    source: Mapping[int, Log],
    remote: Mapping[int, Log],
    partitions_kept: bool = True,
    wanted: Optional[Callable[[Id, int], bool]] = None,
    gone: AbstractSet[Id] = frozenset(),
) -> Verdict:
    """Compare what is committed on the source with what one reader found.

    A copy keeps its partition, or without `partitions_kept` all records of a key are in one. `wanted` says which
    records a flow copies that leaves some out, by record and source offset. `gone` were committed on the source, and
    have been deleted there since: their copies are right, and need not be there.
    """
    originals: Dict[Id, LogRecord] = {}
    for log in source.values():
        for offset, record in log.items():
            which = id_of(record)
            if which is not None and (wanted is None or wanted(which, offset)):
                originals[which] = record
    times: Counter[Id] = Counter()
    furthest: Dict[int, int] = {}
    foreign = changed = reordered = 0
    home: Dict[Optional[bytes], int] = {}
    for number, log in remote.items():
        last: Dict[int, int] = {}
        for record in log.values():
            which = id_of(record)
            known = which in originals or which in gone
            place = (which[0] if which else number) if partitions_kept else home.setdefault(record.key, number)
            if which is None or not known or place != number:
                foreign += 1
                continue
            times[which] += 1
            changed += which in originals and not _same(originals[which], record)
            if times[which] == 1:
                reordered += which[1] < last.get(which[0], -1)
                last[which[0]] = max(which[1], last.get(which[0], -1))
            furthest[which[0]] = max(which[1], furthest.get(which[0], -1))
    missing = [each for each in originals if not times[each]]
    lost = sum(number < furthest.get(partition, -1) for partition, number in missing)
    return Verdict(
        records=sum(len(log) for log in remote.values()),
        lost=lost,
        unseen=len(missing) - lost,
        doubled=sum(count - 1 for count in times.values()),
        reordered=reordered,
        foreign=foreign,
        changed=changed,
    )


def _same(original: LogRecord, copy: LogRecord) -> bool:
    """Equal but for the header that flows add which change records."""
    headers = copy.headers if origin_of(copy) is None else copy.headers[:-1]
    return original == copy._replace(headers=headers)


class Sample(NamedTuple):
    """A group at one moment: its offset on the remote partition, and a source offset that it had not passed before."""

    partition: int
    remote_offset: int
    source_offset: int


def passed_unread(source: Mapping[int, Log], remote: Mapping[int, Log], samples: Sequence[Sample]) -> int:
    """How many records a group that moved to the target would have missed, at the worst of the moments.

    Those are the records before its remote offset that it had not read on the source by then; what is not on the target
    yet is before no offset.
    """
    offsets = {id_of(record): offset for log in source.values() for offset, record in log.items()}
    least: Dict[Tuple[int, int], int] = {}
    for partition, remote_offset, source_offset in samples:
        at = (partition, remote_offset)
        least[at] = min(source_offset, least.get(at, source_offset))
    worst = 0
    for (partition, remote_offset), source_offset in least.items():
        before = {id_of(record) for offset, record in remote[partition].items() if offset < remote_offset}
        # Of a record that was copied twice the first copy may lie before: that one is read.
        worst = max(worst, sum(offsets[each] >= source_offset for each in before if each in offsets))
    return worst


def ids_on(source: Mapping[int, Log]) -> Set[Id]:
    found: List[Optional[Id]] = [id_of(record) for log in source.values() for record in log.values()]
    return {each for each in found if each is not None}

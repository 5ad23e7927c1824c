"""Records of a dead letter topic in, whether a letter is among them out: what keeps a letter from being there twice.

Letters of before what a flow has written down are not kept in memory: it gives them again only where it falls back.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Dict, Iterable, Mapping, NamedTuple, Optional, Tuple

from mirror_lib.changes.changed import ERROR_HEADER, PROVENANCE
from mirror_lib.log.varint import encode_varint
from mirror_lib.records.rows import Partition, headers_of

# The last headers of a letter: where its record came from, and the reason.
_ORIGIN = tuple(name.encode() for name in PROVENANCE)
_REASON = ERROR_HEADER.encode()


class Letter(NamedTuple):
    """What a dead letter is told by: the alias, source partition and offset of its record, a digest, and its time (ms),
    which is None where the broker has set it."""

    cluster: str
    source: Partition
    offset: int
    digest: bytes
    timestamp: Optional[int]


def letter_of(body: bytes, timestamp: Optional[int]) -> Optional[Letter]:
    """What a record of a dead letter topic is told by; `None` where it is no dead letter.

    An offset comes again where a topic is created anew, or its log is cut off: so the record counts as well as where it
    came from. Why it failed does not, as another version may say that otherwise.
    """
    told = list(headers_of(body))[-len(_ORIGIN) - 1 :]
    if tuple(name for name, _ in told) != (*_ORIGIN, _REASON):
        return None
    cluster, topic, number, offset, reason = (value for _, value in told)
    if cluster is None or topic is None or reason is None or not (_is_number(number) and _is_number(offset)):
        return None
    # The reason is the last header, and so the end of the body.
    length = sum(len(encode_varint(len(each))) + len(each) for each in (_REASON, reason))
    digest = blake2b(body[:-length], digest_size=16).digest()
    source = (topic.decode("utf-8", "replace"), int(number or 0))
    return Letter(cluster.decode("utf-8", "replace"), source, int(offset or 0), digest, timestamp)


def _is_number(value: Optional[bytes]) -> bool:
    return value is not None and value.isdigit()


class KnownLetters:
    """All that a dead letter topic held, and was given since, of one cluster's records from where each of its
    partitions stood on. Of a partition that is not said to stand anywhere, from behind the last letter on: there is
    none."""

    def __init__(self, cluster: str, stands: Mapping[Partition, int]) -> None:
        self._cluster = cluster
        self._from: Dict[Partition, int] = {}
        # Offsets of their records by source partition that was said to stand somewhere.
        self._known: Dict[Partition, Dict[Tuple[bytes, Optional[int]], int]] = {}
        self.stands(stands)

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def tells_of(self, letters: Iterable[Letter]) -> bool:
        """Whether it knows if they are there: none is from before where its partition stood."""
        return all(letter.offset >= self._from.get(letter.source, 0) for letter in letters)

    def stands(self, stands: Mapping[Partition, int]) -> None:
        """Forget what is from before where these partitions stand by now."""
        for source, offset in stands.items():
            # One that fell back: what was between is forgotten already.
            first = self._from[source] = max(offset, self._from.get(source, 0))
            known = self._known.get(source, {})
            self._known[source] = {told: at for told, at in known.items() if at >= first}

    def add(self, letter: Letter) -> None:
        """Remember one that is on the topic."""
        if letter.cluster != self._cluster:
            return
        first = self._from.get(letter.source, 0)
        if letter.source not in self._known:
            self._from[letter.source] = max(first, letter.offset + 1)
        elif letter.offset >= first:
            self._known[letter.source][(letter.digest, letter.timestamp)] = letter.offset

    def has(self, letter: Letter) -> bool:
        """Whether it is there, as far as this tells of it."""
        known = self._known.get(letter.source, {})
        return (letter.digest, letter.timestamp) in known or (letter.digest, None) in known

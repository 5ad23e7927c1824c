"""The ledger of a flow as offset maps: one for each partition, built when it is first asked for."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Collection, Dict, Mapping, Set, Union

from mirror_lib.errors import StateError
from mirror_lib.facts import TopicPartition
from mirror_lib.groups.translation import NOT_COPIED
from mirror_lib.ledger.intervals import Numbers, PartitionMap
from mirror_lib.ledger.records import PartitionKey


class FlowMaps:
    """The offset maps of a flow's partitions, from `triples` of `OffsetSyncTable.triples`. `add` adds later rows.
    `contradicted` means that the ledger must be read again.

    `incomplete` are partitions whose remote log has records before the ledger's first row (`EventTable`). It is
    read after the ledger. `asked_for`: the ledger was read because `must_be_reread` was true.
    """

    def __init__(
        self,
        triples: Mapping[PartitionKey, Numbers],
        incomplete: Collection[PartitionKey] = frozenset(),
        asked_for: bool = False,
    ) -> None:
        self._incomplete = incomplete
        self._asked_for = asked_for
        self._triples: Dict[PartitionKey, Numbers] = dict(triples)
        self._added: Dict[PartitionKey, Numbers] = {}
        self._maps: Dict[PartitionKey, Union[PartitionMap, str]] = {}
        self._names: Set[TopicPartition] = {(key.source_topic, key.partition) for key in triples}
        self.contradicted = False

    def is_new(self, key: PartitionKey) -> bool:
        """Whether the maps have no row of the partition: a take-over may have added it."""
        return not any(key in each for each in (self._maps, self._triples, self._added))

    def must_be_reread(self, triples: Mapping[PartitionKey, Numbers]) -> bool:
        """Whether `triples`, which the ledger gained since the last call or the read, show that rows were deleted.

        The first rows after a read may be older than it, and look like rows of a repair right after it. They ask for
        one more read, but not for another one after that: a busy flow would otherwise read the ledger in every cycle.
        """
        older, self._asked_for = self._asked_for, False
        return not older and any(self._takes_back(key, numbers) for key, numbers in triples.items())

    def _takes_back(self, key: PartitionKey, numbers: Numbers) -> bool:
        """Whether a position in `numbers` is before the end of the partition's map: the remote log was truncated, and
        later rows were deleted."""
        positions = [at for at, count in zip(numbers[0::3], numbers[2::3]) if not count]
        if not positions or self.is_new(key):
            return False
        known = self.of(key)
        return isinstance(known, PartitionMap) and min(positions) < known.upstream_end

    def now_incomplete(self, incomplete: Collection[PartitionKey]) -> None:
        """After a take-over. It applies to rows that are added from now on."""
        self._incomplete = incomplete

    def add(self, key: PartitionKey, numbers: Numbers) -> None:
        """Add rows that the ledger gained, flat. A row that the map has already changes nothing."""
        self._added.setdefault(key, array("q")).extend(numbers)
        self._names.add((key.source_topic, key.partition))

    def pass_markers(self, key: PartitionKey, downstream_offset: int) -> None:
        """Record that the remote log has no data record between this offset and the partition's map, which is after or
        before it."""
        known = self.of(key)
        if not isinstance(known, PartitionMap):
            return
        if downstream_offset > known.downstream_end:
            self._maps[key] = known.extended(array("q", (known.upstream_end, downstream_offset, 0)))
        elif downstream_offset < known.downstream_start:
            self._maps[key] = known.extended(array("q", (known.upstream_start, downstream_offset, 0)))

    def of(self, key: PartitionKey) -> Union[PartitionMap, str]:
        """The partition's map, or a phrase with the reason why there is none."""
        known = self._maps.get(key)
        if key in self._triples or key in self._added:
            known = self._maps[key] = self._built(key, known)
        again = (key.source_topic, key.partition) in self._names
        return known or ("the topic was re-created and nothing of it is copied yet" if again else NOT_COPIED)

    def _built(self, key: PartitionKey, known: Union[PartitionMap, str, None]) -> Union[PartitionMap, str]:
        # The map holds what its rows say, so they are not kept as well.
        own, added = self._triples.pop(key, array("q")), self._added.pop(key, array("q"))
        where = f"{key.source_topic}-{key.partition}"
        try:
            if isinstance(known, str):
                # Rows that contradict each other do so with any number of others.
                return known
            # First what was read, which is in order: among the added rows are mostly some that it has as well.
            read = known or (PartitionMap.of_flat(own, where) if own else None)
            built = read.extended(added, where) if read else PartitionMap.of_flat(added, where)
            return replace(built, older=True) if key in self._incomplete else built
        except StateError as error:
            self.contradicted = True
            return error.message

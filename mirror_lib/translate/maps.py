"""A flow's ledger as maps: one for each partition by identity, built when first asked for. Pure but for memory."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Collection, Dict, Mapping, Set, Tuple, Union

from mirror_lib.errors import StateError
from mirror_lib.state.records import LedgerRow, PartitionKey
from mirror_lib.translate.partition_map import PartitionMap

if TYPE_CHECKING:
    from mirror_lib.translate.partition_map import Offsets


class FlowMaps:
    """`triples` as `OffsetSyncTable.triples` gives them. Grows with `add`; `contradicted` asks for a fresh one.

    `incomplete`: partitions of whose remote logs the ledger does not know the beginning (`state.takeovers`).
    """

    def __init__(
        self, triples: Mapping[PartitionKey, Offsets], incomplete: Collection[PartitionKey] = frozenset()
    ) -> None:
        self._incomplete = incomplete
        self._triples: Dict[PartitionKey, Offsets] = dict(triples)
        self._maps: Dict[PartitionKey, Union[PartitionMap, str]] = {}
        self._names: Set[Tuple[str, int]] = {(key.source_topic, key.partition) for key in triples}
        self.contradicted = False

    def add(self, row: LedgerRow) -> None:
        """A row that the ledger gained. One that is known already changes nothing."""
        known = self._triples.get(row.key)
        own = array("q") if known is None else known
        # A copy: the map that was built from the old column may still be read.
        self._triples[row.key] = own + array("q", (row.upstream_offset, row.downstream_offset, row.record_count))
        self._names.add((row.source_topic, row.partition))
        self._maps.pop(row.key, None)

    def of(self, key: PartitionKey) -> Union[PartitionMap, str]:
        """The partition's map, or the reason why there is none, a phrase."""
        if key not in self._maps:
            self._maps[key] = self._built(key)
        return self._maps[key]

    def items(self) -> Mapping[PartitionKey, PartitionMap]:
        """Every map there is."""
        built = {key: self.of(key) for key in self._triples}
        return {key: a_map for key, a_map in built.items() if isinstance(a_map, PartitionMap)}

    def _built(self, key: PartitionKey) -> Union[PartitionMap, str]:
        own = self._triples.get(key)
        if own is None:
            if (key.source_topic, key.partition) in self._names:
                return "the topic was created anew and nothing of it is copied yet"
            return "nothing of this partition is copied yet"
        try:
            built = PartitionMap.of_flat(own, f"{key.source_topic}-{key.partition}")
            return replace(built, older=True) if key in self._incomplete else built
        except StateError as error:
            self.contradicted = True
            return error.message

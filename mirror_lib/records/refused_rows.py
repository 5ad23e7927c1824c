"""What `on.error: skip` leaves out of passes that place records anew: what the target refused in, rows without it out.

Order of effects: what is left out is written down before anything that comes behind it in its remote partition is
appended. So whoever does the pass again leaves out the same, and finds on the remote log what is there.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Sequence, Set, Tuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirror_lib.facts import TopicPartition
from mirror_lib.local_rows import local_rows
from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.spark_end import stage_error
from mirror_lib.state.records import OFFSETS_SKIPPED, Incident
from mirror_lib.state.row_passes import SOURCE, RowPass

# A record of the source: topic, partition, offset.
Origin = Tuple[str, int, int]
_ORIGIN = (("source_topic", "string"), ("source_partition", "int"), ("source_offset", "bigint"))
_PLACE = [name for name, _ in _ORIGIN]


class RowsRefused(Exception):
    """The target refused some `rows` of a pass, as `parts` tell: what they name counts the rows of their partition."""

    def __init__(self, rows: DataFrame, parts: Sequence[PartitionReport]) -> None:
        super().__init__("; ".join(part.stopped or "" for part in parts))
        self.rows = rows
        self.parts = parts


class RefusedRows:
    """One flow's, in one driver's life. `known`: what was written down before."""

    def __init__(self, known: Iterable[Origin] = ()) -> None:
        self._known: Set[Origin] = set(known)
        self._isolate: Dict[TopicPartition, int] = {}

    def begin(self) -> None:
        """Another pass, in which rows are counted anew."""
        self._isolate = {}

    def isolate_until(self, remote: TopicPartition) -> int:
        """Before which of its rows a remote partition gets them one by one, to tell the refused one apart."""
        return self._isolate.get(remote, -1)

    def kept(self, rows: DataFrame, planned: RowPass) -> DataFrame:
        """The rows of a pass (CHANGED_DDL) without those that are left out."""
        ranges = {row.place: range(row.from_offset, row.stands) for row in planned.of(SOURCE)}
        own = sorted(each for each in self._known if each[2] in ranges.get(each[:2], ()))
        if not own:
            return rows
        return rows.join(F.broadcast(local_rows(rows.sparkSession, _ORIGIN, own)), _PLACE, "left_anti")

    def found(self, refused: RowsRefused, flow: str) -> List[Incident]:
        """What is left out now; of what was refused with others at once, these go one by one the next time.
        ClusterError, by the name of the `flow`, where Spark cannot tell which it is."""
        found: List[Incident] = []
        for part in refused.parts:
            first, end = part.rejected_from or 0, part.rejected_until
            self._isolate[part.remote] = max(end, self.isolate_until(part.remote))
            if end - first == 1:
                topic, partition, offset = _origin(refused.rows, part.remote, first, flow)
                found.append(Incident(OFFSETS_SKIPPED, topic, partition, offset, offset + 1, part.stopped or ""))
        return found

    def leave_out(self, incidents: Iterable[Incident]) -> None:
        """They are written down."""
        self._known |= {(each.topic, each.partition, each.from_offset) for each in incidents}


def _origin(rows: DataFrame, remote: TopicPartition, rank: int, flow: str) -> Origin:
    """Where the row of that rank in a remote partition comes from. Reads the pass again."""
    topic, number = remote
    here = (F.col("remote_topic") == topic) & (F.col("remote_partition") == number) & F.col("failure").isNull()
    first = rows.where(here).select(*_PLACE).orderBy(*_PLACE).limit(rank + 1)
    try:
        (found,) = first.agg(F.max(F.struct(*_PLACE)).alias("last")).collect()
    except Exception as error:
        raise stage_error(flow, rows.sparkSession, error) from error
    return found["last"][0], found["last"][1], found["last"][2]

"""Defines columns and schemas of the state tables, and checks a table of another release. Pure.

The columns of each table are in the table's module: `offset_syncs`, `incidents`, `runs`.

A release that adds columns gives them the next version in `since`. Each column has that number in its metadata, so a
table's version is the highest of them and is read without a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Sequence, Tuple

from mirror_lib.errors import ForeignTableError, NewerTableError
from mirror_lib.ledger.records import PartitionKey

SINCE = "mirror.since"


@dataclass(frozen=True)
class Column:
    """A column of a public table: name, Spark SQL type, what its value means, and the version that added it."""

    name: str
    type: str
    comment: str
    since: int = 1

    def metadata(self) -> Mapping[str, object]:
        return {"comment": self.comment, SINCE: self.since}


@dataclass(frozen=True)
class TableSchema:
    """A public table: folder name under `state:`, meaning of a row, columns. The commit fills the column `stamp`."""

    name: str
    comment: str
    columns: Tuple[Column, ...]
    stamp: str

    @property
    def version(self) -> int:
        return max(column.since for column in self.columns)

    def given(self) -> Sequence[Tuple[str, str]]:
        """Name and type of the columns that a writer fills: all but `stamp`."""
        return [(column.name, column.type) for column in self.columns if column.name != self.stamp]


def lacking(schema: TableSchema, found: Mapping[str, int], path: str) -> List[Column]:
    """The columns that a table of an older release lacks.

    `found` has the table's columns with the version that added each. Raises `NewerTableError` for a table of a newer
    release, `ForeignTableError` for columns that no release wrote.
    """
    version = max(found.values(), default=1)
    unknown = [name for name in found if name not in {column.name for column in schema.columns}]
    lacks = [column for column in schema.columns if column.name not in found]
    if version > schema.version:
        raise NewerTableError(
            f"the table {path} has version {version} of its schema, and this release knows version {schema.version}: "
            "nothing was read or written there",
            "run the release that wrote it or a newer one, or name another folder as `state`",
        )
    odd = unknown or [column.name for column in lacks if column.since <= version]
    if odd:
        raise ForeignTableError(
            f"the table {path} {'has' if unknown else 'lacks'} the columns {', '.join(odd)}, unlike version {version} "
            "of its schema: nothing was read or written there",
            "it was changed by hand: restore an earlier version of the table, or name another folder as `state`",
        )
    return lacks


COPIED_PARTITION = (
    Column("flow", "string", "A->B"),
    Column("source_topic", "string", "topic on A"),
    Column("remote_topic", "string", "its copy on B"),
    Column("partition", "int", "the same on both sides"),
    Column("source_topic_id", "string", "Kafka's id of the source topic, empty where brokers have none"),
    Column("remote_topic_id", "string", "Kafka's id of the remote topic, empty where brokers have none"),
)
# In the order of PartitionKey's fields.
PARTITION_KEY = ("source_topic_id", "remote_topic_id", "source_topic", "partition")


def partition_key(row: Any) -> PartitionKey:
    """The partition key of a row, of Spark or of Arrow, with the columns of PARTITION_KEY."""
    return PartitionKey(*(row[name] for name in PARTITION_KEY))

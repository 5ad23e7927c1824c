"""`select` of a flow and the columns that it is over in, the new value of each part of a record out; or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Sequence, Tuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirror_lib.config.record_change import RecordChange
from mirror_lib.config.refusals import config_error, nearest
from mirror_lib.errors import ConfigError
from mirror_lib.rows.catalyst import SelectItem, select_items
from mirror_lib.rows.sentences import explained, refuse_other_rows

REMOTE_TOPIC = "remote_topic"
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
# What a record is made of, and the types that a select may give it in.
PARTS: Mapping[str, Tuple[str, ...]] = {
    "key": ("binary", "string", "void"),
    "value": ("binary", "string", "void"),
    "headers": (HEADERS_TYPE, "array<struct<key:string,value:string>>", "array<void>", "void"),
    "timestamp": ("timestamp",),
    REMOTE_TOPIC: ("string",),
}
NEEDED = ("key", "value", "headers", "timestamp")
# What a record cannot be given, since it says where the record came from.
ORIGIN = ("topic", "partition", "offset", "timestampType")
_TYPE_HINTS = {
    "key": "make it text or bytes, e.g. with to_json() or cast(... as string)",
    "headers": "it is an array of struct(key, value), with a text and bytes",
    "timestamp": "it is a timestamp",
    REMOTE_TOPIC: "it is text",
}


@dataclass(frozen=True)
class Output:
    """One part of the record that the select gives: `column` in the part's own type, `text` as it was written."""

    name: str
    column: Column
    text: str

    @property
    def as_it_came(self) -> bool:
        """Whether it is the column of that name."""
        return self.text == self.name


def outputs(rows: DataFrame, change: RecordChange, again: bool = False) -> List[Output]:
    """What `change.select` makes of `rows`, all their columns where there is none: every needed part of a record, and
    REMOTE_TOPIC where it gives one.

    Raises ConfigError for what is no select list, loses a part, or gives what no record has; `again`, as of `changed`.
    """
    # Without a select, rows that do not make a record are the transform's doing.
    given = _Given("select" if change.select else "transform", change)
    with explained(given.key, given.place, rows.columns):
        items = select_items(rows.sparkSession, change.select or "*")
    if not items:
        raise given.refused("must be a select list alone, without FROM and what follows it")
    chosen = _by_name(items, rows.columns, given)
    lost = [name for name in NEEDED if name not in chosen]
    if lost:
        advice = "begin it with * to keep what it does not name" if change.select else "keep its columns"
        raise given.refused(f"loses {' and '.join(lost)}; {advice}")
    with explained(given.key, given.place, rows.columns):
        made = rows.select(*(each.column.alias(name) for name, each in chosen.items()))
    if not again:
        refuse_other_rows(rows, made, given.key, given.place)
    types = dict(made.dtypes)
    return [Output(name, _typed(name, each, types[name], given), each.text) for name, each in chosen.items()]


class _Given:
    """The setting that gives the parts, and its place."""

    def __init__(self, key: str, change: RecordChange) -> None:
        self.key = key
        self.place = change.place(key)

    def refused(self, sentence: str) -> ConfigError:
        """The error that says so of this setting."""
        return config_error(f"{self.key} {sentence}", self.place)


def _by_name(items: Sequence[SelectItem], columns: Sequence[str], given: _Given) -> Dict[str, SelectItem]:
    """The last item of each name; `*` are all columns, of which only a record's own parts are kept."""
    chosen: Dict[str, SelectItem] = {}
    for item in items:
        if item.name == "*":
            chosen.update({name: SelectItem(name, F.col(name), name) for name in columns if name in PARTS})
        elif item.name in PARTS:
            chosen[item.name] = item
        elif item.name not in ORIGIN or item.text.strip("`") != item.name:
            raise given.refused(_not_a_part(item))
    return chosen


def _not_a_part(item: SelectItem) -> str:
    if not item.name:
        return f"gives {item.text}, which needs a name: write {item.text} as value, or another part of a record"
    if item.name in ORIGIN:
        return f"gives a new {item.name}, which says where a record came from; a remote topic is {REMOTE_TOPIC}"
    like = nearest(item.name, PARTS)
    advice = f"did you mean {like}?" if like else f"a record has {', '.join(PARTS)}"
    return f"gives {item.name}, which no record has; {advice}"


def _typed(name: str, item: SelectItem, found: str, given: _Given) -> Column:
    if found not in PARTS[name]:
        raise given.refused(f"gives {name} as {found}; {_TYPE_HINTS.get(name, _TYPE_HINTS['key'])}")
    if name == "headers":
        return F.coalesce(item.column.cast(HEADERS_TYPE), F.expr(f"cast(array() as {HEADERS_TYPE})"))
    return item.column if name in ("timestamp", REMOTE_TOPIC) else item.column.cast("binary")

"""What a flow changes in its records (`where`, `select`, `transform`), parsed into a frozen `RecordChange`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Mapping, Match, Optional, Tuple, Union

from mirror_lib.config.document import Value
from mirror_lib.config.values import LEGAL_NAME, Kind, check_pattern, either, is_entry_point, items, key, one, rows

BATCHES, RECORDS = "batches", "records"
# Where a record goes: to the partition that it had, or to the one that Kafka's partitioner gives its key.
SOURCE, KEY = "source", "key"

# A pattern and the remote topic that takes its place; `$1` and `\1` stand for groups.
Rename = Tuple[str, str]
Partitioner = Union[str, int]

_GROUP = re.compile(r"[$\\](\d)")
# Of a pattern: what stands for itself, as in a topic's name; a group that holds no other one.
_LITERAL = re.compile(r"(?:[\w.-]|\\[.-]|\[\.\])*")
_INNERMOST = re.compile(r"(?<!\\)\((?!\?)[^()]*\)")


def _keeps_apart(pattern: str, name: str) -> bool:
    """Whether all of a topic's name that `pattern` leaves open, from its first group to its last, is in `name` as it
    stands, so that two topics are two there too.

    Decided without the topics that are there now: a later topic must not join another one's remote topic."""
    first, *others = _INNERMOST.split(pattern)
    if len(others) != re.compile(pattern).groups or not all(map(_LITERAL.fullmatch, (first, *others))):
        return False
    between = [re.sub(r"[][\\]", "", text) for text in others[:-1]]
    left_open = "".join(f"${number}{text}" for number, text in zip(range(1, 10), [*between, ""])) if others else ""
    return left_open in name.replace("\\", "$")


def _filled(name: str, match: Match[str]) -> str:
    return _GROUP.sub(lambda group: match.group(int(group[1])) or "", name)


def _sql(value: Value) -> Optional[str]:
    return one(value) or None


def _transform(value: Value) -> Optional[str]:
    name = one(value)
    if name and not is_entry_point(name):
        raise ValueError("must be a Python function of your own, written module:function")
    return name or None


def _renames(value: Value) -> Tuple[Rename, ...]:
    found: Tuple[Rename, ...] = ()
    for position, text in enumerate(items(value), start=1):
        pattern, name = _rename(text, position)
        if name in (other for _, other in found) or not _keeps_apart(pattern, name):
            raise ValueError(
                f"must give each topic a remote topic of its own (item {position} brings {pattern} together with other "
                f"topics in {name}; copy each topic by a flow of its own, with shared.remote.topics: true)"
            )
        found = (*found, (pattern, name))
    return found


def _rename(text: str, position: int) -> Rename:
    pattern, arrow, given = (part.strip() for part in text.partition("->"))
    names = re.split(r"\s+", given) if given else []
    if not (pattern and arrow and names):
        raise ValueError(f"must be a list of TOPIC -> REMOTE TOPIC, and item {position} is none")
    if len(names) > 1:
        raise ValueError(
            f"must give each topic one remote topic (item {position} gives {pattern} several, {', '.join(names)}; copy "
            "it by a flow for each, with a rename of its own)"
        )
    check_pattern(pattern, position)
    _check_name(names[0], re.compile(pattern).groups, position)
    return pattern, names[0]


def _check_name(name: str, groups: int, position: int) -> None:
    wanted = max((int(number) for number in _GROUP.findall(name)), default=0)
    if wanted > groups:
        raise ValueError(f"names group {wanted} in item {position}, whose pattern has {groups}")
    try:
        LEGAL_NAME.parse(_GROUP.sub("x", name))
    except ValueError:
        raise ValueError(f"has in item {position} a remote topic that is no legal topic name") from None
    if name.startswith("__"):
        raise ValueError(f"has in item {position} a remote topic that begins with __, as Kafka's internal topics do")


def _partitioner(value: Value) -> Partitioner:
    word = one(value).lower()
    if word in (SOURCE, KEY):
        return word
    if not re.fullmatch(r"\d{1,6}", word) or int(word) == 0:
        raise ValueError("must be source, key or a number of partitions")
    return int(word)


CONDITION = Kind("Spark SQL", _sql)
SELECT_LIST = Kind("Spark SQL", lambda value: _sql(value if isinstance(value, str) else ", ".join(value)))
TRANSFORM = Kind("module:function", _transform)
RENAMES = Kind("list or map", _renames)
PARTITIONER = Kind("source, key or a number", _partitioner)
OPTIONAL_NAME = Kind("text", lambda value: LEGAL_NAME.parse(value) if one(value) else None)
ON_OR_OFF = either("on", "off")


@dataclass(frozen=True)
class RecordChange:
    """How a flow of the engine `records` changes what it copies; as made here, nothing is changed.

    `where` and `select` are Spark SQL, `transform` is `module:function`, from DataFrame to DataFrame. The first pattern
    of `rename` that a topic's whole name matches gives its remote topic; a topic without one is named by the policy.
    `partitioner` is SOURCE, KEY, or the number of partitions that keys are spread over. With `provenance` each copied
    record says in a header where it came from. `places` holds `file:line` of the settings of the flow, by their keys.
    """

    where: Optional[str] = key("where", CONDITION, "", "Condition that selects the records to copy, over `topic`, "
        "`partition`, `offset`, `timestamp`, `timestampType`, `key`, `value`, `headers`")
    select: Optional[str] = key("select", SELECT_LIST, "", "Select list over the same columns. Its `key`, `value`, "
        "`headers` or `timestamp` replaces the old one; `*` keeps the others")
    transform: Optional[str] = key("transform", TRANSFORM, "", "Your Python function from DataFrame to DataFrame, "
        "before `where` and `select`")
    rename: Tuple[Rename, ...] = key("rename", RENAMES, "", "Remote topics by `TOPIC -> NAME`, instead of the policy. "
        "The first match of the whole name counts; `$1` is its first group")
    partitioner: Partitioner = key("partitioner", PARTITIONER, "source", "`source` keeps a record's partition; `key` "
        "repartitions as Kafka's producer does; a number also sets the partition count")
    provenance: bool = key("provenance", ON_OR_OFF, "on", "Adds the header `mirror.origin`, by which recovery finds "
        "copied records. With `off` the flow is at least once")
    dead_letter_topic: Optional[str] = key("dead.letter.topic", OPTIONAL_NAME, "", "Topic on the target for records on "
        "which an expression fails. Without it the partition stops; a flow that repartitions records ends")
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def renamed(self, topic: str) -> Optional[str]:
        """The remote topic that `rename` gives a source topic; `None` where it says nothing of it."""
        for pattern, name in self.rename:
            match = re.fullmatch(pattern, topic)
            if match is not None:
                return _filled(name, match)
        return None

    def place(self, key: str) -> str:
        return self.places.get(key, key)

    @property
    def repartitions(self) -> bool:
        return self.partitioner != SOURCE


# The settings that change records, by the field that each of them fills.
CHANGE_KEYS: Mapping[str, str] = {each.name: each.field for each in rows(RecordChange)}

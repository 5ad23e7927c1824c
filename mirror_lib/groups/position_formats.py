"""Reads and writes the forms in which people keep offsets: CSV, and the offset JSON of Spark's Kafka source. Pure.

Translated positions are written in the form in which they were given, or as a table.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import astuple, dataclass, fields
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from mirror_lib.errors import ConfigError, RefusedError
from mirror_lib.groups.translation import BEFORE_FIRST
from mirror_lib.text import aligned, counted

TABLE = "table"
CSV = "csv"
SPARK_JSON = "spark json"

COLUMNS = ("topic", "partition", "offset")
_FORMS = (
    'give CSV with the first line topic,partition,offset, or Spark\'s {"t":{"0":123}}; in a file of a Spark'
    " checkpoint's folder offsets that is the line of the Kafka source"
)
_LARGEST = {"partition": 2**31 - 1, "offset": 2**63 - 1}
_DIGITS = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True)
class TopicPosition:
    """The next offset to be read of one partition."""

    topic: str
    partition: int
    offset: int


# The format of the answer, and the positions in the given order.
PositionInput = Tuple[str, Tuple[TopicPosition, ...]]


@dataclass(frozen=True)
class TranslatedPosition:
    """A position and its place on the other cluster. `remote_topic` is `-` if the flow does not copy the partition.
    `remote_partition` and `remote_offset` are `None` if they are unknown. `verdict` has the quality of the answer, or
    the reason why there is none. `lost`: offsets that a reader there skips unread, as that log lacks them."""

    topic: str
    partition: int
    offset: int
    remote_topic: str
    remote_partition: Optional[int]
    remote_offset: Optional[int]
    verdict: str
    lost: int = 0

    @property
    def warning(self) -> Optional[str]:
        """What a reader skips that starts there, if it may skip records."""
        if not self.lost and self.verdict != BEFORE_FIRST:
            return None
        gone = f"{counted(self.lost, 'offset')} that it no longer has" if self.lost else "what is before its first copy"
        return f"{self.topic}-{self.partition} at {self.offset}: a reader of {self.remote_topic} skips {gone}"


_FIELDS = tuple(field.name for field in fields(TranslatedPosition))


def one_position(topic: str, partition: int, offset: int) -> PositionInput:
    """Raises `ConfigError` for a negative number."""
    return TABLE, (_position("the command line", topic, partition, offset),)


def read_positions(text: str, name: str) -> PositionInput:
    """The positions in `text`, whose format is recognized from its start. `name` is the file's name, or `stdin`. Raises
    `ConfigError` with its place for anything that is not fully understood."""
    text = text.lstrip("\ufeff")
    form, read = (SPARK_JSON, _spark_positions) if text.lstrip().startswith("{") else (CSV, _csv_positions)
    positions = tuple(read(text, name))
    if not positions:
        raise ConfigError(f"{name} holds no positions", _FORMS)
    return form, positions


def _spark_positions(text: str, name: str) -> Iterator[TopicPosition]:
    try:
        offsets = json.loads(text, object_pairs_hook=_each_key_once)
    except ValueError as error:
        raise ConfigError(f"{name}: not valid JSON: {error}", _FORMS) from None
    for topic, partitions in offsets.items():
        if not isinstance(partitions, dict):
            raise ConfigError(f'{name}: not offsets by partition, as {{"0":123}}: {json.dumps(partitions)}', _FORMS)
        for partition, offset in partitions.items():
            yield _position(name, topic, partition, offset)


def _each_key_once(pairs: List[Tuple[str, object]]) -> Dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice in one object")
    return found


def _csv_positions(text: str, name: str) -> Iterator[TopicPosition]:
    reader = csv.reader(text.splitlines())
    header: List[str] = []
    for cells in (list(map(str.strip, row)) for row in reader):
        place = f"{name}:{reader.line_num}"
        if not any(cells):
            continue
        if not header:
            header = cells
            missing = [column for column in COLUMNS if column not in header]
            if missing:
                raise ConfigError(f"{place}: the header has no column {missing[0]}", _FORMS)
        elif len(cells) != len(header):
            raise ConfigError(f"{place}: {len(cells)} cells where the header has {len(header)}", _FORMS)
        else:
            row = dict(zip(header, cells))
            yield _position(place, *(row[column] for column in COLUMNS))


def _position(place: str, topic: str, partition: object, offset: object) -> TopicPosition:
    if not topic:
        raise ConfigError(f"{place}: a position has no topic")
    return TopicPosition(topic, _whole(place, "partition", partition), _whole(place, "offset", offset))


def _whole(place: str, name: str, value: object) -> int:
    """`value`, which is a number or its digits."""
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
    # `True` is an int to Python.
    if type(number) is not int or not 0 <= number <= _LARGEST[name]:
        raise ConfigError(f"{place}: {name} must be a whole number from 0, not {json.dumps(value)}")
    return number


def render(form: str, answers: Sequence[TranslatedPosition]) -> str:
    """The answers in the format `form`, without the last line's end. Spark's JSON cannot express an unknown offset:
    raises `RefusedError` for a position without a translation."""
    if form == SPARK_JSON:
        return _spark_json(answers)
    rows = list(map(astuple, answers))
    if form == CSV:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_FIELDS, *rows])
        return text.getvalue().rstrip("\n")
    header = [name.upper().replace("_", "-") for name in _FIELDS]
    cells = [["-" if value is None else str(value) for value in row] for row in rows]
    return "\n".join(aligned([header, *cells], right=(1, 2, 4, 5, 7)))


def _spark_json(answers: Sequence[TranslatedPosition]) -> str:
    """The offset JSON of a Kafka source that reads the remote topics, as Spark writes it: `{"A.t":{"0":123}}`."""
    missing = [answer for answer in answers if answer.remote_offset is None]
    if missing:
        listed = "; ".join(f"{a.topic}-{a.partition} at {a.offset}: {a.verdict}" for a in missing[:5])
        more = f"; and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise RefusedError(
            f"Spark's offset JSON cannot leave out a partition, and {len(missing)} of {len(answers)} cannot be"
            f" translated: {listed}{more}",
            "Spark would begin such a partition at an end of its log; let the mirror catch up, or give the positions as"
            " CSV to see what can be translated",
            code="MIR-351",
        )
    offsets: Dict[str, Dict[str, Optional[int]]] = {}
    for answer in answers:
        offsets.setdefault(answer.remote_topic, {})[str(answer.remote_partition)] = answer.remote_offset
    return json.dumps(offsets, ensure_ascii=False, separators=(",", ":"))

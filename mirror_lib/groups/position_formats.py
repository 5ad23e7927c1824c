"""Reads and writes the forms in which people keep offsets: JSON, JSON lines, CSV, and Spark's own two. Pure.

Spark's are the offset JSON of a Kafka source, `{"t":{"0":123}}`, and a whole file of a checkpoint's folder `offsets`.
Translated positions are written in the form in which they were given, or as a table.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.errors import ConfigError, RefusedError
from mirror_lib.groups.translation import REPARTITIONED
from mirror_lib.text import aligned

TABLE = "table"
JSON = "json"
JSON_LINES = "json lines"
CSV = "csv"
SPARK_JSON = "spark json"
SPARK_OFFSETS_FILE = "spark offsets file"

# Spark's Kafka source: not offsets but "from wherever the log ends, or begins, then".
SYMBOLIC = {-1: "latest", -2: "earliest"}
COLUMNS = ("topic", "partition", "offset")
_FORMS = (
    'give a JSON list or lines of {"topic": "t", "partition": 0, "offset": 123}, CSV with the first line'
    ' topic,partition,offset, Spark\'s {"t":{"0":123}}, or a file of a Spark checkpoint\'s folder offsets'
)
_LARGEST = {"partition": 2**31 - 1, "offset": 2**63 - 1}
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class TopicPosition:
    """The next offset to be read of one partition. -1 (latest) and -2 (earliest) come from Spark's JSON only."""

    topic: str
    partition: int
    offset: int

    @property
    def symbolic(self) -> bool:
        """Whether it is Spark's symbol for an end of the log, which means the same on both clusters."""
        return self.offset in SYMBOLIC


@dataclass(frozen=True)
class PositionInput:
    """Parsed input. `form` is the format of the answer; `lines` are the whole lines of a Spark offsets file.
    `positions` are in the given order; Spark's formats name each partition once in each source."""

    form: str
    positions: Tuple[TopicPosition, ...]
    lines: Tuple[str, ...] = ()

    def notes(self) -> Sequence[str]:
        return [
            f"{p.topic}-{p.partition}: {p.offset} ({SYMBOLIC[p.offset]}) is no offset and is passed on unchanged"
            for p in self.positions
            if p.symbolic
        ]


def one_position(topic: str, partition: int, offset: int) -> PositionInput:
    """Raises `ConfigError` for a negative number."""
    value = {"topic": topic, "partition": partition, "offset": offset}
    return PositionInput(TABLE, (_position(value, "the command line"),))


def read_positions(text: str, name: str) -> PositionInput:
    """The positions in `text`, whose format is recognized from its start. `name` is the file's name, or `stdin`. Raises
    `ConfigError` with file and line for anything that is not fully understood."""
    text = text.lstrip("\ufeff")
    start = text.lstrip()[:1]
    if re.match(r"\s*v[0-9]+\s*(\n|$)", text):
        given = _read_spark_offsets_file(text, name)
    elif start == "[":
        given = PositionInput(JSON, tuple(_position(value, place) for place, value in _list_entries(text, name)))
    elif start == "{":
        given = _json_object_or_lines(text, name)
    else:
        given = PositionInput(CSV, tuple(_csv_positions(text, name)))
    if not given.positions:
        raise ConfigError(f"{name} holds no positions", _FORMS)
    return given


def spark_positions(value: object, place: str) -> Sequence[TopicPosition]:
    """The positions of one decoded offset JSON of a Kafka source. Raises `ConfigError` if it is not one."""
    if not is_kafka_offsets(value):
        raise ConfigError(f'{place}: not the offsets of a Kafka source, which look like {{"t":{{"0":123}}}}', _FORMS)
    assert isinstance(value, dict)
    return [
        _position({"topic": topic, "partition": int(partition), "offset": offset}, place, symbolic=True)
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    ]


def is_kafka_offsets(value: object) -> bool:
    """Whether a decoded JSON has the shape of a Kafka source's offsets: topics, in each partitions by number."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(
            isinstance(partitions, dict) and all(_NUMBER.fullmatch(number) for number in partitions)
            for partitions in value.values()
        )
    )


def decode(text: str, name: str, line: int = 1) -> object:
    """Decode JSON that starts at `line`. Raises `ConfigError` with the line of the error; a repeated key is an error
    too."""
    try:
        return json.loads(text, object_pairs_hook=_each_key_once)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}:{line + error.lineno - 1}: not valid JSON: {error.msg}", _FORMS) from None
    except _RepeatedKey as error:
        raise ConfigError(f"{name}:{line}: {error} is given twice in one JSON object", _FORMS) from None


class _RepeatedKey(Exception):
    """A JSON object with a repeated key; the decoder would silently take the last value."""


def _each_key_once(pairs: List[Tuple[str, object]]) -> Dict[str, object]:
    found: Dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKey(key)
        found[key] = value
    return found


def _json_object_or_lines(text: str, name: str) -> PositionInput:
    if _is_one_document(text):
        value = decode(text, name)
        place = f"{name}:{1 + text[: text.index('{')].count(chr(10))}"
        if is_kafka_offsets(value):
            return PositionInput(SPARK_JSON, tuple(spark_positions(value, place)))
        return PositionInput(JSON_LINES, (_position(value, place),))
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    values = [(f"{name}:{number}", decode(line, name, number)) for number, line in lines]
    return PositionInput(JSON_LINES, tuple(_position(value, place) for place, value in values))


def _is_one_document(text: str) -> bool:
    """Whether text that starts with `{` is one JSON document, valid or not, rather than one on each line."""
    try:
        _, end = json.JSONDecoder().raw_decode(text.lstrip())
    except json.JSONDecodeError:
        return True
    return not text.lstrip()[end:].strip()


def _list_entries(text: str, name: str) -> Iterator[Tuple[str, object]]:
    """Each entry of a JSON list with its place, which the decoder does not return."""
    entries = decode(text, name)
    assert isinstance(entries, list)
    at = text.index("[") + 1
    for entry in entries:
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
        yield f"{name}:{1 + text.count(chr(10), 0, at)}", entry
        _, at = json.JSONDecoder().raw_decode(text, at)


def _read_spark_offsets_file(text: str, name: str) -> PositionInput:
    """A version, the batch's metadata, then a line for each source: Kafka's are translated, others stay as they are."""
    lines = text.rstrip("\n").split("\n")
    if lines[0].strip() != "v1":
        raise ConfigError(f"{name}:1: {lines[0].strip()} of Spark's offset files is not known here, only v1", _FORMS)
    positions: List[TopicPosition] = []
    for number, line in enumerate(lines[2:], 3):
        value = decode(line, name, number) if line.startswith("{") else None
        if is_kafka_offsets(value):
            positions += spark_positions(value, f"{name}:{number}")
    return PositionInput(SPARK_OFFSETS_FILE, tuple(positions), tuple(lines))


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
            numbers = {c: int(row[c]) if _NUMBER.fullmatch(row[c]) else row[c] for c in COLUMNS[1:]}
            yield _position({"topic": row["topic"], **numbers}, place)


def _position(value: object, place: str, symbolic: bool = False) -> TopicPosition:
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: not a position, which is an object with topic, partition and offset", _FORMS)
    missing = [name for name in COLUMNS if name not in value]
    if missing:
        raise ConfigError(f"{place}: the position has no {missing[0]}", _FORMS)
    topic, partition, offset = (value[name] for name in COLUMNS)
    if not isinstance(topic, str) or not topic:
        raise ConfigError(f"{place}: topic must be a name, not {json.dumps(topic)}")
    if not (symbolic and type(offset) is int and offset in SYMBOLIC):
        _refuse_odd_number("offset", offset, place)
    _refuse_odd_number("partition", partition, place)
    return TopicPosition(topic, partition, offset)


def _refuse_odd_number(name: str, value: object, place: str) -> None:
    # `True` is an int to Python.
    if type(value) is not int or not 0 <= value <= _LARGEST[name]:
        raise ConfigError(f"{place}: {name} must be a whole number from 0, not {json.dumps(value)}")


_FIELDS = ("topic", "partition", "offset", "remote_topic", "remote_partition", "remote_offset", "verdict")
# The remote topic of what is not copied.
NOWHERE = "-"


@dataclass(frozen=True)
class TranslatedPosition:
    """A position and its place on the other cluster. `translated` is `None` if it is unknown. `verdict` has the quality
    of the answer, or the reason why there is none."""

    topic: str
    partition: int
    offset: int
    remote_topic: str
    translated: Optional[int]
    verdict: str

    @property
    def remote_partition(self) -> Optional[int]:
        return None if self.remote_topic == NOWHERE or self.verdict == REPARTITIONED else self.partition


def unchanged(position: TopicPosition, remote_topic: str) -> TranslatedPosition:
    return TranslatedPosition(
        position.topic, position.partition, position.offset, remote_topic, position.offset, "unchanged"
    )


def render(given: PositionInput, answers: Sequence[TranslatedPosition]) -> str:
    """The answers in the format of `given`, without the last line's end; `answers` are in the same order. Spark's
    formats cannot express an unknown offset: raises `RefusedError` for a position without a translation."""
    if given.form == SPARK_JSON:
        return spark_json(answers)
    if given.form == SPARK_OFFSETS_FILE:
        return _written_spark_offsets_file(given.lines, answers)
    if given.form == CSV:
        return csv_text(answers)
    if given.form == JSON_LINES:
        return "\n".join(_json(document(answer)) for answer in answers)
    if given.form == JSON:
        return _json([document(answer) for answer in answers])
    return "\n".join(table_lines(answers))


def document(answer: TranslatedPosition) -> Dict[str, object]:
    return dict(zip(_FIELDS, _values(answer)))


def table_lines(answers: Sequence[TranslatedPosition]) -> List[str]:
    header = [name.upper().replace("_", "-") for name in _FIELDS]
    rows = [["-" if value is None else str(value) for value in _values(answer)] for answer in answers]
    return aligned([header, *rows], right=(1, 2, 4, 5))


def csv_text(answers: Sequence[TranslatedPosition]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_FIELDS)
    writer.writerows(_values(answer) for answer in answers)
    return text.getvalue().rstrip("\n")


def spark_json(answers: Sequence[TranslatedPosition]) -> str:
    """The offset JSON of a Kafka source that reads the remote topics, as Spark writes it: `{"A.t":{"0":123}}`. Raises
    `RefusedError` if a partition has no translation."""
    _refuse_untranslated(answers)
    offsets: Dict[str, Dict[str, Optional[int]]] = {}
    for answer in answers:
        offsets.setdefault(answer.remote_topic, {})[str(answer.partition)] = answer.translated
    return _json(offsets)


def _refuse_untranslated(answers: Sequence[TranslatedPosition]) -> None:
    missing = [answer for answer in answers if answer.translated is None]
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


def _written_spark_offsets_file(lines: Sequence[str], answers: Sequence[TranslatedPosition]) -> str:
    # Checked for all sources together, so that the sentence counts them all.
    _refuse_untranslated(answers)
    by_position = {(answer.topic, answer.partition, answer.offset): answer for answer in answers}
    return "\n".join([*lines[:2], *(_source_line(line, by_position) for line in lines[2:])])


def _source_line(line: str, answers: Mapping[Tuple[str, int, int], TranslatedPosition]) -> str:
    value = json.loads(line) if line.startswith("{") else None
    if not is_kafka_offsets(value):
        return line
    return spark_json([answers[p.topic, p.partition, p.offset] for p in spark_positions(value, "the offsets file")])


def _values(answer: TranslatedPosition) -> Tuple[object, ...]:
    where = (answer.topic, answer.partition, answer.offset, answer.remote_topic, answer.remote_partition)
    return (*where, answer.translated, answer.verdict)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

"""Translated positions in, text out: in the form in which the positions were given, or as a table. Pure."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.columns import aligned
from mirror_lib.errors import RefusedError
from mirror_lib.groups.position_formats import (
    CSV,
    JSON,
    JSON_LINES,
    SPARK_JSON,
    SPARK_OFFSETS_FILE,
    PositionInput,
    TopicPosition,
    is_kafka_offsets,
    spark_positions,
)

_FIELDS = ("topic", "partition", "offset", "remote_topic", "remote_partition", "remote_offset", "verdict")
# The remote topic of what is not copied.
NOWHERE = "-"


@dataclass(frozen=True)
class TranslatedPosition:
    """A position and where it lies on the other cluster. `translated` is `None` where that is not known; `verdict` says
    how good the answer is, or why there is none. `other` is the partition there, `None` where it has the same number.
    """

    topic: str
    partition: int
    offset: int
    remote_topic: str
    translated: Optional[int]
    verdict: str
    other: Optional[int] = None

    @property
    def remote_partition(self) -> int:
        """The partition's number on the other cluster."""
        return self.partition if self.other is None else self.other


def unchanged(position: TopicPosition, remote_topic: str) -> TranslatedPosition:
    """The answer for a symbolic position: the same word on the other cluster."""
    return TranslatedPosition(
        position.topic, position.partition, position.offset, remote_topic, position.offset, "unchanged"
    )


def render(given: PositionInput, answers: Sequence[TranslatedPosition]) -> str:
    """The answers in the form in which `given` came, without the last line's end; `answers` in the same order.

    Spark's forms cannot say that something is unknown, so RefusedError where a position in them has no translation.
    """
    if given.form == SPARK_JSON:
        return spark_json(answers)
    if given.form == SPARK_OFFSETS_FILE:
        return _spark_offsets_file(given.lines, answers)
    if given.form == CSV:
        return csv_text(answers)
    if given.form == JSON_LINES:
        return "\n".join(_json(document(answer)) for answer in answers)
    if given.form == JSON:
        return _json([document(answer) for answer in answers])
    return "\n".join(table_lines(answers))


def document(answer: TranslatedPosition) -> Dict[str, object]:
    """One answer as a JSON document; `remote_offset` is null where it is not known."""
    return dict(zip(_FIELDS, _values(answer)))


def table_lines(answers: Sequence[TranslatedPosition]) -> List[str]:
    """A header and one line for each answer; `-` where the translation is not known."""
    header = [name.upper().replace("_", "-") for name in _FIELDS]
    rows = [["-" if value is None else str(value) for value in _values(answer)] for answer in answers]
    return aligned([header, *rows], right=(1, 2, 4, 5))


def csv_text(answers: Sequence[TranslatedPosition]) -> str:
    """A header and one row for each answer; an empty cell where the translation is not known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_FIELDS)
    writer.writerows(_values(answer) for answer in answers)
    return text.getvalue().rstrip("\n")


def spark_json(answers: Sequence[TranslatedPosition]) -> str:
    """The offset JSON of a Kafka source that reads the remote topics, as Spark writes it: `{"A.t":{"0":123}}`.

    RefusedError if a partition has no translation, or if two topics have one remote topic.
    """
    _refuse_untranslated(answers)
    offsets: Dict[str, Dict[str, Optional[int]]] = {}
    for answer in answers:
        partitions = offsets.setdefault(answer.remote_topic, {})
        number = str(answer.remote_partition)
        if number in partitions:
            raise RefusedError(
                f"{answer.remote_topic}-{number} is the copy of two of the partitions given",
                "translate the topics one by one and decide which position is meant",
            )
        partitions[number] = answer.translated
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
        )


def _spark_offsets_file(lines: Sequence[str], answers: Sequence[TranslatedPosition]) -> str:
    # Checked for all sources together, so that the sentence counts them all.
    _refuse_untranslated(answers)
    if any(answer.other is not None for answer in answers):
        raise RefusedError(
            "in a file of offsets each position has one answer, and records of this flow are placed anew",
            "give the offset JSON of each source by itself",
        )
    by_position = {(answer.topic, answer.partition, answer.offset): answer for answer in answers}
    return "\n".join([*lines[:2], *(_source_line(line, by_position) for line in lines[2:])])


def _source_line(line: str, answers: Mapping[Tuple[str, int, int], TranslatedPosition]) -> str:
    value = json.loads(line) if line.startswith("{") else None
    if not is_kafka_offsets(value):
        return line
    return spark_json([answers[p.topic, p.partition, p.offset] for p in spark_positions(value, "the offsets file")])


def _values(answer: TranslatedPosition) -> Tuple[object, ...]:
    number = None if answer.remote_topic == NOWHERE else answer.remote_partition
    where = (answer.topic, answer.partition, answer.offset, answer.remote_topic, number)
    return (*where, answer.translated, answer.verdict)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

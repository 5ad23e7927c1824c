"""Positions kept outside Kafka: each form that is read, the same form back, one sentence for what is not understood."""

from __future__ import annotations

import json
from typing import Sequence

import pytest

from mirror_lib.errors import ConfigError, RefusedError
from mirror_lib.groups.position_formats import (
    CSV,
    JSON,
    JSON_LINES,
    SPARK_JSON,
    SPARK_OFFSETS_FILE,
    TABLE,
    PositionInput,
    TopicPosition,
    TranslatedPosition,
    csv_text,
    one_position,
    read_positions,
    render,
    unchanged,
)

OFFSETS_FILE = """v1
{"batchWatermarkMs":0,"batchTimestampMs":1732192000000,"conf":{"spark.sql.shuffle.partitions":"2"}}
{"orders":{"1":20,"0":10}}
{"logOffset":3}
-
{"clicks":{"0":7}}"""


def answers(given: PositionInput) -> Sequence[TranslatedPosition]:
    """As if every remote offset lay a thousand further on."""
    return [
        unchanged(p, f"primary.{p.topic}")
        if p.symbolic
        else TranslatedPosition(p.topic, p.partition, p.offset, f"primary.{p.topic}", p.offset + 1000, "exact")
        for p in given.positions
    ]


def positions(text: str) -> Sequence[tuple[str, int, int]]:
    return [(p.topic, p.partition, p.offset) for p in read_positions(text, "file").positions]


def unknown(given: PositionInput, partition: int) -> Sequence[TranslatedPosition]:
    """The answers, but for one partition there is none."""
    return [
        TranslatedPosition(a.topic, a.partition, a.offset, a.remote_topic, None, "held: ahead of the ledger by 5")
        if a.partition == partition
        else a
        for a in answers(given)
    ]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('[{"topic":"orders","partition":0,"offset":10},{"topic":"orders","partition":1,"offset":20}]', JSON),
        (
            '{"topic":"orders","partition":0,"offset":10}\n\n{"topic":"orders","partition":1,"offset":20,"by":"me"}\n',
            JSON_LINES,
        ),
        ("topic,partition,offset\norders,0,10\norders,1,20\n", CSV),
        ("offset, group ,partition,topic\r\n10,g,0,orders\r\n\r\n20,g,1,orders\r\n", CSV),
        ('\ufeff{"orders":{"0":10,"1":20}}\n', SPARK_JSON),
        ('v1\n{"conf":{}}\n{"orders":{"0":10,"1":20}}', SPARK_OFFSETS_FILE),
    ],
    ids=["json", "json lines", "csv", "csv of another order", "spark json", "spark offsets file"],
)
def test_each_form_is_recognised_by_how_it_begins(text: str, form: str) -> None:
    assert positions(text) == [("orders", 0, 10), ("orders", 1, 20)]
    assert read_positions(text, "file").form == form


def test_a_position_of_the_command_line_is_answered_by_a_table() -> None:
    given = one_position("orders", 3, 4711)
    assert given == PositionInput(TABLE, (TopicPosition("orders", 3, 4711),))
    row = render(given, answers(given)).split("\n")[1].split()
    assert row == ["orders", "3", "4711", "primary.orders", "3", "5711", "exact"]
    assert render(given, unknown(given, 3)).endswith("  -  held: ahead of the ledger by 5")


def test_json_csv_and_lines_are_answered_in_kind_and_say_what_is_not_known() -> None:
    for text in ('[{"topic":"orders","partition":0,"offset":10}]', '{"topic":"orders","partition":0,"offset":10}'):
        given = read_positions(text, "file")
        found = json.loads(render(given, unknown(given, 0)))
        assert (found[0] if given.form == JSON else found) == {
            **{"topic": "orders", "partition": 0, "offset": 10, "remote_topic": "primary.orders"},
            **{"remote_partition": 0, "remote_offset": None, "verdict": "held: ahead of the ledger by 5"},
        }
    given = read_positions("topic,partition,offset\norders,0,10\norders,1,20", "file")
    assert render(given, unknown(given, 1)).split("\n") == [
        "topic,partition,offset,remote_topic,remote_partition,remote_offset,verdict",
        "orders,0,10,primary.orders,0,1010,exact",
        "orders,1,20,primary.orders,1,,held: ahead of the ledger by 5",
    ]


def test_position_of_a_repartitioned_topic_has_no_place_and_no_form_without_one() -> None:
    answered = [TranslatedPosition("orders", 0, 10, "all", None, "repartitioned")]
    (row,) = [line.split(",") for line in csv_text(answered).splitlines()[1:]]
    assert row == ["orders", "0", "10", "all", "", "", "repartitioned"]
    with pytest.raises(RefusedError, match="orders-0 at 10: repartitioned") as refused:
        render(read_positions('{"orders":{"0":10}}', "file"), answered)
    assert refused.value.code == "MIR-351"


def test_spark_offset_json_comes_back_in_which_latest_and_earliest_stay_and_are_told() -> None:
    given = read_positions('{"orders":{"0":-1,"1":-2,"2":5},"clicks":{"0":7}}', "file")
    assert render(given, answers(given)) == '{"primary.orders":{"0":-1,"1":-2,"2":1005},"primary.clicks":{"0":1007}}'
    assert [note.split(" is ")[0] for note in given.notes()] == ["orders-0: -1 (latest)", "orders-1: -2 (earliest)"]


def test_a_spark_offsets_file_comes_back_whole_with_other_sources_untouched() -> None:
    given = read_positions(OFFSETS_FILE + "\n", "offsets/7")

    assert positions(OFFSETS_FILE) == [("orders", 1, 20), ("orders", 0, 10), ("clicks", 0, 7)]
    expected = OFFSETS_FILE.split("\n")
    expected[2] = '{"primary.orders":{"1":1020,"0":1010}}'
    expected[5] = '{"primary.clicks":{"0":1007}}'
    assert render(given, answers(given)).split("\n") == expected


@pytest.mark.parametrize("text", ['{"orders":{"0":10,"1":20}}', OFFSETS_FILE], ids=["offset json", "offsets file"])
def test_spark_forms_with_one_unknown_partition_are_refused_not_half_right(text: str) -> None:
    given = read_positions(text, "file")

    with pytest.raises(RefusedError, match="orders-1 at 20: held: ahead of the ledger by 5"):
        render(given, unknown(given, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "file holds no positions"),
        ("[]", "file holds no positions"),
        ("v1\n{}\n-", "file holds no positions"),
        ("orders,0,10", "file:1: the header has no column topic"),
        ("topic,partition,offset\n\norders,0", "file:3: 2 cells where the header has 3"),
        ("topic,partition,offset\norders,0,ten", 'file:2: offset must be a whole number from 0, not "ten"'),
        ("topic,partition,offset\norders,0,-1", 'offset must be a whole number from 0, not "-1"'),
        ("topic,partition,offset\n,0,1", 'file:2: topic must be a name, not ""'),
        ('[{"topic":"orders","partition":0,\n"offset":10},\n  {"topic":"a"}]', "file:3: the position has no partition"),
        ('[{"topic":"orders"', "file:1: not valid JSON"),
        ("[\n1]", "file:2: not a position"),
        ('[{"topic":"t","partition":true,"offset":1}]', "file:1: partition must be a whole number from 0, not true"),
        ('[{"topic":"t","partition":0,"offset":1.0}]', r"file:1: offset must be a whole number from 0, not 1\.0"),
        ('[{"topic":"t","partition":0,"offset":9223372036854775808}]', "file:1: offset must be a whole number"),
        ('{"topic":"t","partition":0,"offset":1}\n{"topic":"t"', "file:2: not valid JSON"),
        ('{"topic":"t","partition":0,"offset":1}\n{"t":{"0":1}}', "file:2: the position has no topic"),
        ('{"t":{"0":1,"0":2}}', "file:1: 0 is given twice"),
        ('{"t":{"zero":1}}', "file:1: the position has no topic"),
        ('{"t":{"0":-3}}', "file:1: offset must be a whole number from 0, not -3"),
        ('v2\n{}\n{"t":{"0":1}}', "file:1: v2 of Spark's offset files is not known"),
        ('v1\n{}\n{"t":{"0":1}', "file:3: not valid JSON"),
        ('v1\n{}\n{"a":{"0":1}}\n{"t":{"0":null}}', "file:4: offset must be a whole number from 0, not null"),
    ],
)
def test_what_is_not_understood_is_one_sentence_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        read_positions(text, "file")
    assert "\n" not in str(refused.value)

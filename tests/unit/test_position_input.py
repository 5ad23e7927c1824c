"""Positions kept outside Kafka: each form that is read, the same form back, one sentence for what is not understood."""

from __future__ import annotations

from typing import Optional, Sequence

import pytest

from mirror_lib.errors import ConfigError, RefusedError
from mirror_lib.groups.position_formats import (
    CSV,
    SPARK_JSON,
    TABLE,
    PositionInput,
    TopicPosition,
    TranslatedPosition,
    one_position,
    read_positions,
    render,
)


def answers(given: PositionInput, unknown: Optional[int] = None) -> Sequence[TranslatedPosition]:
    """As if every remote offset lay a thousand further on; for one partition there may be none."""
    return [
        TranslatedPosition(
            *(p.topic, p.partition, p.offset, f"primary.{p.topic}", p.partition),
            *((None, "held: ahead of the ledger by 5") if p.partition == unknown else (p.offset + 1000, "exact")),
        )
        for p in given.positions
    ]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("topic,partition,offset\norders,0,10\norders,1,20\n", CSV),
        ("offset, group ,partition,topic\r\n10,g,0,orders\r\n\r\n20,g,1,orders\r\n", CSV),
        ('\ufeff{"orders":{"0":10,"1":20}}\n', SPARK_JSON),
    ],
    ids=["csv", "csv of another order", "spark json"],
)
def test_each_form_is_recognised_by_how_it_begins(text: str, form: str) -> None:
    positions = (TopicPosition("orders", 0, 10), TopicPosition("orders", 1, 20))
    assert read_positions(text, "file") == PositionInput(form, positions)


def test_a_position_of_the_command_line_is_answered_by_a_table() -> None:
    given = one_position("orders", 3, 4711)
    assert given == PositionInput(TABLE, (TopicPosition("orders", 3, 4711),))
    row = render(given, answers(given)).split("\n")[1].split()
    assert row == ["orders", "3", "4711", "primary.orders", "3", "5711", "exact"]
    assert render(given, answers(given, 3)).endswith("  -  held: ahead of the ledger by 5")


def test_csv_is_answered_in_kind_and_says_what_is_not_known() -> None:
    given = read_positions("topic,partition,offset\norders,0,10\norders,1,20", "file")
    repartitioned = TranslatedPosition("orders", 2, 30, "all", None, None, "repartitioned")
    assert render(given, [*answers(given, 1), repartitioned]).split("\n") == [
        "topic,partition,offset,remote_topic,remote_partition,remote_offset,verdict",
        "orders,0,10,primary.orders,0,1010,exact",
        "orders,1,20,primary.orders,1,,held: ahead of the ledger by 5",
        "orders,2,30,all,,,repartitioned",
    ]


def test_spark_offset_json_comes_back_in_the_order_given() -> None:
    given = read_positions('{"orders":{"1":20,"0":10},"clicks":{"0":7}}', "file")
    assert render(given, answers(given)) == '{"primary.orders":{"1":1020,"0":1010},"primary.clicks":{"0":1007}}'


def test_spark_json_with_one_unknown_partition_is_refused_not_half_right() -> None:
    given = read_positions('{"orders":{"0":10,"1":20}}', "file")
    with pytest.raises(RefusedError, match="orders-1 at 20: held: ahead of the ledger by 5") as refused:
        render(given, answers(given, 1))
    assert refused.value.code == "MIR-351"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "file holds no positions"),
        ("{}", "file holds no positions"),
        ("orders,0,10", "file:1: the header has no column topic"),
        ("topic,partition,offset\n\norders,0", "file:3: 2 cells where the header has 3"),
        ("topic,partition,offset\norders,0,ten", 'file:2: offset must be a whole number from 0, not "ten"'),
        ("topic,partition,offset\norders,0,-1", 'offset must be a whole number from 0, not "-1"'),
        ("topic,partition,offset\n,0,1", "file:2: a position has no topic"),
        ('[{"topic":"orders","partition":0,"offset":10}]', "file:1: the header has no column topic"),
        ('v1\n{"conf":{}}\n{"orders":{"0":10}}', "file:1: the header has no column topic"),
        ('{"topic":"orders","partition":0,"offset":10}', "file: not offsets by partition"),
        ('{"t":{"0":1}}\n{"t":{"0":1}}', "file: not valid JSON: Extra data: line 2"),
        ('{"t":{"0":1}', "file: not valid JSON"),
        ('{"t":{"0":1,"0":2}}', "file: not valid JSON: a key is given twice"),
        ('{"t":{"zero":1}}', 'file: partition must be a whole number from 0, not "zero"'),
        ('{"t":{"0":-1}}', "file: offset must be a whole number from 0, not -1"),
        ('{"t":{"0":true}}', "file: offset must be a whole number from 0, not true"),
        ('{"t":{"0":1.0}}', r"file: offset must be a whole number from 0, not 1\.0"),
        ('{"t":{"0":9223372036854775808}}', "file: offset must be a whole number"),
    ],
)
def test_what_is_not_understood_is_one_sentence_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        read_positions(text, "file")
    assert "\n" not in str(refused.value)

"""Positions kept outside Kafka: each form that is read, the same form back, one sentence for what is not understood."""

from __future__ import annotations

import pytest

from mirror_lib.errors import ConfigError
from mirror_lib.groups.position_formats import CSV, SPARK_JSON, PositionInput, TopicPosition, read_positions


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "file holds no positions"),
        ("topic,partition,offset\n\norders,0", "file:3: 2 cells where the header has 3"),
        ("topic,partition,offset\norders,0,ten", 'file:2: offset must be a whole number from 0, not "ten"'),
        ("topic,partition,offset\norders,0,-1", 'offset must be a whole number from 0, not "-1"'),
        ("topic,partition,offset\n,0,1", "file:2: a position has no topic"),
        ('v1\n{"conf":{}}\n{"orders":{"0":10}}', "file:1: the header has no column topic"),
        ('{"topic":"orders","partition":0,"offset":10}', "file: not offsets by partition"),
        ('{"t":{"0":1}}\n{"t":{"0":1}}', "file: not valid JSON: Extra data: line 2"),
        ('{"t":{"0":1,"0":2}}', "file: not valid JSON: a key is given twice"),
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

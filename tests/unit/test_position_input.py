"""Positions kept outside Kafka: each form that is read, the same form back, one sentence for what is not understood."""

from __future__ import annotations

from argparse import Namespace
from contextlib import nullcontext

import pytest

from mirror_lib.commands.groups import translate_position_command
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import ConfigError
from mirror_lib.facts import CommittedOffset
from mirror_lib.groups.decisions import Decision
from mirror_lib.groups.position_formats import CSV, SPARK_JSON, TopicPosition, read_positions
from mirror_lib.groups.positions import _answer
from mirror_lib.groups.translation import BEFORE_FIRST, CLAMPED, EXACT, Translation
from tests.lab.flows import flow_of


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
    assert read_positions(text, "file") == (form, positions)


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


@pytest.mark.parametrize(
    ("made", "code", "warning"),
    [
        (Translation(EXACT, 100, reread=0), 0, ""),
        (Translation(CLAMPED, 800, lost=700), 1, "a reader of A.orders skips 700 offsets that it no longer has"),
        (Translation(BEFORE_FIRST, 0), 0, "a reader of A.orders skips what is before its first copy"),
    ],
)
def test_position_from_which_a_reader_skips_records_is_named(
    made: Translation, code: int, warning: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("orders", 0)
    answer = _answer(Decision("0", place, ("A.orders", 0), CommittedOffset(100), None, made), *place, 100)
    monkeypatch.setattr("mirror_lib.commands.groups.running_session", lambda _: nullcontext())
    monkeypatch.setattr("mirror_lib.commands.groups.translate_positions", lambda *_, **__: [answer])
    arguments = Namespace(topic="orders", partition=0, offset=100, file=None, flow=None, reverse=False)
    assert translate_position_command(arguments, MirrorConfig((flow_of(auto_offset_reset="latest"),), "state")) == code
    assert capsys.readouterr().err == (f"warning: orders-0 at 100: {warning}\n" if warning else "")

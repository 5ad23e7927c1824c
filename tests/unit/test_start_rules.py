"""Every case in which a run may meet a partition, and what it does there: it never appends on an assumption."""

from __future__ import annotations

import itertools
from dataclasses import fields
from enum import Enum
from typing import Dict, Optional, Tuple, Type

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.record_change import RecordChange
from mirror_lib.kafka.record_batch import Record
from mirror_lib.ledger.records import Position
from mirror_lib.replication.start_rules import (
    RULES,
    Action,
    Begins,
    Case,
    Ids,
    RemoteLog,
    Rows,
    SourceLog,
    Writer,
    rule_of,
    unlike,
)

KINDS: Dict[str, Type[Enum]] = {
    "rows": Rows,
    "remote": RemoteLog,
    "source": SourceLog,
    "ids": Ids,
    "begins": Begins,
    "writer": Writer,
}
CASES = [Case(*each) for each in itertools.product(Rows, RemoteLog, SourceLog, Ids, Begins, Writer)]


def expected(case: Case) -> Tuple[Action, str]:
    """The same decision in another form: by what each fact proves."""
    if case.rows is not Rows.SOME:
        return without_rows(case)
    if case.source is SourceLog.RECREATED:
        return Action.STOP, "MIR-316"
    if case.source is SourceLog.SHORTER:
        return Action.STOP, "MIR-311"
    if case.remote is RemoteLog.SHORTER:
        return Action.REFILL, "MIR-312"
    return Action.RESUME, "MIR-313"


def without_rows(case: Case) -> Tuple[Action, str]:
    if case.writer is Writer.RUNNING:
        return Action.STOP, "MIR-340"
    if case.remote is RemoteLog.EMPTY:
        return Action.BEGIN, ""
    if case.rows is Rows.NONE and case.begins is Begins.OFFSETS:
        return Action.COMPARE, "MIR-329"
    if case.source is SourceLog.EMPTY:
        return Action.BEGIN, ""
    shows_all = case.remote in (RemoteLog.WHOLE, RemoteLog.SHORTER)
    from_the_start = case.rows is Rows.OTHER or case.begins is not Begins.LATEST
    return (Action.COMPARE if shows_all and from_the_start else Action.STOP), "MIR-329"


@pytest.mark.parametrize("rows", Rows)
@pytest.mark.parametrize("remote", RemoteLog)
@pytest.mark.parametrize("source", SourceLog)
def test_every_case_is_decided_by_what_is_proven(rows: Rows, remote: RemoteLog, source: SourceLog) -> None:
    cases = [each for each in CASES if (each.rows, each.remote, each.source) == (rows, remote, source)]
    assert len(cases) == len(Ids) * len(Begins) * len(Writer)
    for case in cases:
        rule = rule_of(case)
        assert (rule.action, rule.code) == expected(case), case


def test_cases_have_every_fact_and_rules_name_no_other() -> None:
    assert [each.name for each in fields(Case)] == list(KINDS)
    for rule in RULES:
        for name, values in rule.when.items():
            assert values and all(isinstance(value, KINDS[name]) for value in values), rule


def test_no_rule_is_dead() -> None:
    assert {id(rule_of(case)) for case in CASES} == {id(rule) for rule in RULES}


PLAIN = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
AT = Position(99, 104)


def record(offset: int, body: bytes = b"body", timestamp: int = 7) -> Record:
    return Record(offset, timestamp, body)


@pytest.mark.parametrize(
    ("ours", "theirs", "stamped", "found"),
    [
        (record(99), record(104), False, False),
        (record(99, b"new"), record(104), False, True),
        (record(99, timestamp=8), record(104), False, True),
        (record(99, timestamp=8), record(104), True, False),
        (record(99, b"new"), record(104), True, True),
        # A log that has lost its record shows nothing.
        (record(100, b"new"), record(104), False, False),
        (record(99, b"new"), record(105), False, False),
        (None, record(104), False, False),
        (record(99, b"new"), None, False, False),
    ],
)
def test_topic_is_another_one_where_a_recorded_copy_is_not_its_sources_record(
    ours: Optional[Record], theirs: Optional[Record], stamped: bool, found: bool
) -> None:
    assert unlike(PLAIN, AT, ours, theirs, stamped) is found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (RecordChange(where="true"), True),
        (RecordChange(select="*, now() as timestamp"), False),
        (RecordChange(transform="module:function"), False),
    ],
)
def test_changed_records_have_the_timestamp_in_common_unless_the_flow_sets_it(
    change: RecordChange, found: bool
) -> None:
    flow = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), change=change)
    assert unlike(flow, AT, record(99), record(104, b"with an origin"), False) is False
    assert unlike(flow, AT, record(99, timestamp=8), record(104, b"with an origin"), False) is found

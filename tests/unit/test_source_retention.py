"""What `mirror retention` changes on the source, and what it leaves."""

from __future__ import annotations

from typing import Optional

import pytest

from mirror_lib.control.source_retention import OWN, RetentionChange, raises, restores
from mirror_lib.facts import TopicConfigEntry, TopicConfigs
from mirror_lib.ledger.records import SourceRetention

RAISED = SourceRetention("orders", "raise", "1000", "5000")


def configs(value: Optional[str], source: str = OWN, policy: str = "delete") -> TopicConfigs:
    keeps = TopicConfigEntry(value, source, is_default=False)
    return {"retention.ms": keeps, "cleanup.policy": TopicConfigEntry(policy, OWN, is_default=True)}


@pytest.mark.parametrize(
    ("found", "before"),
    [
        (configs("1000"), "1000"),
        (configs("4999", "DEFAULT_CONFIG"), None),
        (configs("0", policy="compact,delete"), "0"),
        (configs("1000", "DYNAMIC_DEFAULT_BROKER_CONFIG"), None),
    ],
)
def test_topic_that_deletes_earlier_is_raised_and_its_own_value_recorded(
    found: TopicConfigs, before: Optional[str]
) -> None:
    (change,) = raises({"orders": found}, 5000, {})
    assert (change.to, change.row) == ("5000", SourceRetention("orders", "raise", before, "5000"))


@pytest.mark.parametrize("found", [configs("5000"), configs("-1"), configs("1000", policy="compact")])
def test_topic_that_keeps_its_records_as_long_is_left(found: TopicConfigs) -> None:
    assert raises({"orders": found}, 5000, {}) == []


def test_topic_that_is_raised_again_keeps_the_value_to_restore() -> None:
    (change,) = raises({"orders": configs("5000")}, 9000, {"orders": RAISED})
    assert (change.now, change.to, change.row.before) == ("5000", "9000", "1000")


def test_topic_is_restored_once_it_is_copied() -> None:
    done = SourceRetention("orders", "restore", "1000", "5000")
    found = {"orders": configs("5000")}
    assert restores(found, {"orders": 0}, {"orders": RAISED}) == [RetentionChange("orders", "5000", "1000", done)]
    (waits,) = restores(found, {"orders": 3}, {"orders": RAISED})
    assert waits.kept == "3 offsets are not copied" and (waits.to, waits.row) == ("5000", RAISED)
    # Of a partition without a leader, and of a topic that the flow does not copy now, it is not known.
    for lags in ({"orders": None}, {}):
        (unknown,) = restores(found, lags, {"orders": RAISED})
        assert unknown.kept and (unknown.to, unknown.row) == ("5000", RAISED)


@pytest.mark.parametrize("now", ["7000", None], ids=["changed", "deleted"])
def test_value_of_another_is_left_and_not_asked_about_again(now: Optional[str]) -> None:
    found = {} if now is None else {"orders": configs(now)}
    (change,) = restores(found, {}, {"orders": RAISED})
    assert change.kept and (change.to, change.row.action) == (now, "restore")

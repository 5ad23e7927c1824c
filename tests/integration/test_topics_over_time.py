"""Topics that come, grow, vanish and come back, on either side: followed, or refused with a sentence."""

from __future__ import annotations

import json
import logging
from typing import List

import pytest

from tests.integration.conftest import Command, Ground, Names
from tests.lab.flow_lab import FlowLab, values
from tests.lab.one_flow import until
from tests.lab.readers import differences, read_topic


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> FlowLab:
    return FlowLab(*ground, topic_name("time"))


def recreate_source(lab: FlowLab) -> None:
    lab.source.delete_topic(f"{lab.name}.orders")
    lab.create("orders")


def test_running_flow_follows_new_topics_and_new_partitions(
    lab: FlowLab, caplog: pytest.LogCaptureFixture, command: Command
) -> None:
    verified = command("verify", lab.config)
    assert verified.code == 1 and "nothing was compared" in verified.err
    lab.trigger = "1 second"
    caplog.set_level(logging.INFO, "mirror.events")
    lab.create("orders")
    lab.write("orders", values(50))
    with lab.running() as outcomes:
        until(lambda: lab.remote_values("orders") == values(50))
        lab.create("payments", 2)
        lab.write("payments", values(50), 1)
        lab.grow("orders", 3)
        lab.write("orders", values(20, "new partition"), 2)
        lab.write("orders", values(20, "old partition"), 0)
        until(lambda: len(lab.remote_values("payments", 1)) == 50 and len(lab.remote_values("orders", 2)) == 20)
        until(lambda: lab.differences("orders") == [])
        assert lab.differences("payments") == []
    assert [outcome.error for outcome in outcomes] == [None]
    assert sorted(row[:2] for row in lab.incidents()) == [("partitions added", "orders"), ("topic added", "payments")]
    status = command("status", lab.config)
    assert status.code == 0
    for code, topic in (("MIR-608", "payments"), ("MIR-609", "orders")):
        assert [f"({code}): {lab.name}.{topic}" in each.message for each in caplog.records].count(True) == 1
    shown = [line for line in status.out.splitlines() if line.startswith("  event")]
    assert sorted(line.split("(")[1][:7] for line in shown) == ["MIR-608", "MIR-609"]
    # The way back has nothing to copy, as is usual.
    lab.flows = ("source->target", "target->source")
    verified = command("verify", lab.config)
    assert verified.code == 0 and "target->source: nothing was compared" in verified.err


def test_source_topic_created_anew_is_refused_with_a_sentence_or_appended_where_asked(lab: FlowLab) -> None:
    lab.create("orders")
    lab.create("others")
    lab.write("orders", values(50, "old"))
    lab.copy()
    recreate_source(lab)
    lab.write("orders", values(20, "new"))
    lab.write("others", values(20))
    outcome = lab.run()
    assert outcome.error is not None and (outcome.error.code, outcome.error.exit_code) == ("MIR-316", 3)
    assert lab.remote_values("orders") == values(50, "old")
    assert lab.remote_values("others") == values(20)

    lab.copy(on_data_loss="continue")
    assert lab.remote_values("orders") == [*values(50, "old"), *values(20, "new")]
    assert lab.incidents() == [("topic recreated", "orders", 0, 0, 20)]
    lab.write("orders", values(20, "later"))
    lab.copy(on_data_loss="fail")
    assert lab.remote_values("orders") == [*values(50, "old"), *values(20, "new"), *values(20, "later")]
    # The remote topic is filled again.
    lab.target.delete_topic(lab.remote("orders"))
    lab.copy()
    assert lab.differences("orders") == [] and lab.incidents()[1:] == [("topic recreated", "orders", 0, 0, 40)]


@pytest.mark.long
def test_topic_that_is_gone_from_the_source_is_named_by_verify_until_it_is_left_out(
    lab: FlowLab, command: Command
) -> None:
    for stem in ("orders", "others"):
        lab.create(stem, 2)
        lab.write(stem, values(20))
    lab.copy()
    lab.source.delete_topic(f"{lab.name}.orders")

    verified = command("verify", lab.config)
    assert verified.code == 1 and f"{lab.name}.orders-0: the topic was copied and is not seen" in verified.out

    lab.settings["topics.exclude"] = json.dumps([f"{lab.name}[.]orders"])
    verified = command("verify", lab.config, "--json")
    (topic,) = verified.documents[0]["topics"]
    assert (verified.code, topic["topic"], topic["verdict"]) == (0, f"{lab.name}.others", "equal")
    assert f"left out by the flow now, and not compared: {lab.name}.orders\n" in verified.err

    lab.settings["topics.exclude"] = json.dumps([f"{lab.name}[.].*"])
    verified = command("verify", lab.config, "--json")
    assert verified.code == 1 and verified.documents[0]["equal"] is False


@pytest.mark.long
def test_records_that_expired_before_they_were_copied_are_refused_or_named_exactly_and_copied_ones_are_no_loss(
    lab: FlowLab,
) -> None:
    lab.create("orders", 2)
    lab.write("orders", values(50))
    lab.write("orders", values(50, "other"), 1)
    lab.copy()
    lab.expire("orders", 50, 1)
    lab.write("orders", values(100, "later"))
    lab.write("orders", values(10, "later"), 1)
    lab.expire("orders", 120)
    outcome = lab.run()
    assert outcome.error is not None and outcome.error.exit_code == 3
    assert "offsets 50 to 119 left the source's log before they were copied" in str(outcome.error)
    assert lab.remote_values("orders") == values(50)
    assert len(lab.remote_values("orders", 1)) == 60

    lab.copy(on_data_loss="continue")
    assert lab.remote_values("orders") == [*values(50), *values(100, "later")[70:]]
    assert lab.incidents() == [("partition stopped", "orders", 0, 50, -1), ("data lost", "orders", 0, 50, 120)]


def test_two_clusters_copy_each_other_and_no_record_goes_round(lab: FlowLab) -> None:
    lab.flows = ("source->target", "target->source")
    lab.settings["topics"] = json.dumps([f".*{lab.name}[.].*"])
    topics: List[str] = []
    for stem in ("orders", "later"):
        topics.append(lab.create(stem))
        lab.target.create_topic(topics[-1], 1)
        lab.write(stem, values(30, "here"))
        lab.write_to(lab.target, topics[-1], values(40, "there"))
        outcomes = lab.run_all()
        assert [(outcome.flow, outcome.error) for outcome in outcomes] == [(name, None) for name in lab.flows]
    assert lab.differences("orders") == lab.differences("later") == []
    for topic in topics:
        assert differences(read_topic(lab.target, topic), read_topic(lab.source, f"target.{topic}")) == []
    there = [{name for name in broker.topics if lab.name in name} for broker in (lab.source, lab.target)]
    assert there == [{*topics, *(f"{alias}.{topic}" for topic in topics)} for alias in ("target", "source")]

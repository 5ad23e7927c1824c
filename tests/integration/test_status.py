"""`mirror status` on real clusters: what it says of a flow before, while and after it runs, and of what is broken."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest
from confluent_kafka import Producer

from mirror_lib.status import facts
from tests.integration.conftest import Command, Ground, Names
from tests.lab.damage import commits
from tests.lab.flow_lab import NOON, FlowLab, values


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> FlowLab:
    return FlowLab(*ground, topic_name("status"))


Printed = Callable[..., Tuple[int, Dict[str, Any]]]


@pytest.fixture
def printed(lab: FlowLab, command: Command) -> Printed:
    """The exit code of a command, and its last JSON document."""

    def run(*words: str, config: Optional[Path] = None) -> Tuple[int, Dict[str, Any]]:
        done = command(*words, config or lab.config, "--json")
        return done.code, done.documents[-1]

    return run


def codes(found: Dict[str, Any]) -> List[str]:
    return [each["code"] for each in found["problems"]]


def test_status_of_a_flow_before_and_after_its_runs(lab: FlowLab, command: Command, printed: Printed) -> None:
    # Ten hours are left until the source deletes what is not copied then.
    kept = (time.time() - NOON / 1000 + 36_000) * 1000
    lab.create("orders", 2, retention_ms=str(round(kept)))
    lab.write("orders", values(100))
    code, found = printed("status")
    assert (code, codes(found), found["lag"]) == (2, ["never ran", "retention"], 100)

    # `order` matches nothing, and a pattern may be for later topics.
    lab.settings["topics"] = f'["{lab.name}.order", "{lab.name}.orders", "{lab.name}[.]pay.*"]'
    outcome = lab.copy()
    assert f"`{lab.name}.order` (did you mean {lab.name}.orders?)" in outcome.note and "pay" not in outcome.note
    code, found = printed("status")
    assert (code, codes(found)) == (1, ["no such topic"])
    del lab.settings["topics"]
    assert command("verify", lab.config).code == 0
    code, found = printed("status")
    assert (code, found["state"], found["lag"], codes(found)) == (0, "healthy", 0, [])
    assert (found["run"]["outcome"], found["run"]["running"]) == ("ok", False)
    assert (found["verified"]["verdict"], found["verified"]["records"]) == ("equal", 100)
    at = {each["partition"]: (each["position"], each["log_end"], each["lag"]) for each in found["partitions"]}
    assert at == {0: (100, 100, 0), 1: (0, 0, 0)} or at == {0: (100, 100, 0), 1: (None, 0, 0)}

    lab.write("orders", values(7, "later"), partition=1)
    code, found = printed("status")
    assert (code, found["lag"], codes(found)) == (1, 7, ["retention"])
    assert 35_000 < found["kept_seconds"] <= 36_000 and found["lag_seconds"] > 86_400
    assert f"! the source may delete records of {lab.name}.orders-1 in " in command("status", lab.config).out
    assert [each["code"] for each in printed("plan")[1]["problems"]] == ["retention"]
    doctor = command("doctor", lab.config, "--no-spark", "--json").documents
    assert [each["level"] for each in doctor if each["code"] == "retention"] == ["warning"]
    # No Spark is started.
    python = [sys.executable, "-X", "importtime", "-m", "mirror_lib.cli", "status", str(lab.config)]
    done = subprocess.run(python, capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (done.returncode, done.stdout.count("\n") > 1) == (1, True)
    assert "pyspark" not in loaded and "deltalake" in loaded


def test_records_that_wait_for_an_open_transaction_are_named_by_every_command(
    lab: FlowLab, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.create("orders")
    producer = Producer({"bootstrap.servers": lab.source.bootstrap, "transactional.id": lab.name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    yesterday = round((time.time() - 86_400) * 1000)
    for number in range(3):
        producer.produce(f"{lab.name}.orders", b"%d" % number, partition=0, timestamp=yesterday)
    producer.flush(30)
    lab.write("orders", values(10))
    (waiting,) = lab.copy().waiting
    assert waiting.startswith(f"13 offsets of {lab.name}.orders-0 ")
    # The transaction is seconds old, whatever its records say.
    code, found = printed("status")
    assert (code, codes(found), found["lag"]) == (0, [], 0)
    (left,) = found["transactions"]
    assert (left["producer"], left["since"], left["held"]) == (f"transactional id {lab.name}", 0, 13)
    assert 0 <= time.time() - left["started"] < 300
    with monkeypatch.context() as patch:
        patch.setattr(facts, "HANGING_SECONDS", 0.0)
        assert codes(printed("status")[1]) == ["hanging transaction"]
    assert (printed("verify")[0], printed("verify", "--complete")[0]) == (0, 1)
    assert len(printed("verify")[1]["waiting"]) == len(printed("plan")[1]["waiting"]) == 1
    code, found = printed("cutover", "plan")
    assert code == 1 and [each["code"] for each in found["gates"] if "orders-0" in each["detail"]] == ["transactions"]
    producer.abort_transaction(30)
    assert lab.copy().waiting == ()
    assert [printed(*each)[0] for each in (["status"], ["verify", "--complete"], ["cutover", "plan"])] == [0, 0, 0]
    assert len(lab.remote_values("orders")) == 10


@pytest.mark.long
def test_retention_by_size_counts_what_is_not_copied(lab: FlowLab, printed: Printed) -> None:
    lab.create("orders", retention_ms="-1", retention_bytes="100000")
    for count, least, most, problems in ((100, 80_000, 90_000, []), (1000, -1_000_000, 0, ["retention"])):
        lab.write("orders", [b"%d" % number + b"x" * 100 for number in range(count)])
        _, found = printed("status")
        assert codes(found) == ["never ran", *problems] and least < found["kept_bytes"] < most


def test_status_names_what_cannot_be_read(lab: FlowLab, printed: Printed) -> None:
    lab.create("orders")
    lab.write("orders", values(10))
    lab.copy()
    text = lab.config.read_text()
    away = lab.directory / "away.yaml"
    away.write_text(text.replace(lab.source.bootstrap, "127.0.0.1:9"))
    asked = time.monotonic()
    code, found = printed("status", config=away)
    assert (code, codes(found), found["run"]["outcome"]) == (2, ["unreadable"], "ok")
    # Far less than the 30 s of `admin.timeout.ms`.
    assert time.monotonic() - asked < 10
    assert "cannot reach" in found["problems"][0]["what"]

    commits(lab.directory / "state" / "offset_syncs")[-1].write_text("{")
    code, found = printed("status")
    assert (code, codes(found)) == (2, ["unreadable"])
    assert "offset_syncs" in found["problems"][0]["what"]

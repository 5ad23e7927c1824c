"""`mirror status` on real clusters: what it says of a flow before, while and after it runs, and of what is broken."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest
from confluent_kafka import Producer

from mirror_lib.cli import main
from mirror_lib.status import facts
from tests.integration.conftest import Ground
from tests.lab.flow_lab import NOON, FlowLab, values


@pytest.fixture
def lab(ground: Ground, topic_name: Callable[[str], str]) -> FlowLab:
    return FlowLab(*ground, topic_name("status"))


def status(config: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Tuple[int, Dict[str, Any]]:
    code = main(["status", str(config), "--json", *options])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def codes(found: Dict[str, Any]) -> List[str]:
    return [each["code"] for each in found["problems"]]


def test_status_of_a_flow_before_and_after_its_runs(lab: FlowLab, capsys: pytest.CaptureFixture[str]) -> None:
    # Ten hours are left until the source deletes what is not copied then.
    kept = (time.time() - NOON / 1000 + 36_000) * 1000
    lab.create("orders", 2, retention_ms=str(round(kept)))
    lab.write("orders", values(100))
    code, found = status(lab.config, capsys)
    assert (code, codes(found), found["lag"]) == (2, ["never ran", "retention"], 100)

    # `order` matches nothing, and a pattern may be for later topics.
    lab.settings["topics"] = f'["{lab.name}.order", "{lab.name}.orders", "{lab.name}[.]pay.*"]'
    outcome = lab.copy()
    assert f"`{lab.name}.order` (did you mean {lab.name}.orders?)" in outcome.note and "pay" not in outcome.note
    code, found = status(lab.config, capsys)
    assert (code, codes(found)) == (1, ["no such topic"])
    del lab.settings["topics"]
    assert main(["verify", str(lab.config)]) == 0
    capsys.readouterr()
    code, found = status(lab.config, capsys)
    assert (code, found["state"], found["lag"], codes(found)) == (0, "healthy", 0, [])
    assert (found["run"]["outcome"], found["run"]["running"]) == ("ok", False)
    assert (found["verified"]["verdict"], found["verified"]["records"]) == ("equal", 100)
    at = {each["partition"]: (each["position"], each["log_end"], each["lag"]) for each in found["partitions"]}
    assert at == {0: (100, 100, 0), 1: (0, 0, 0)} or at == {0: (100, 100, 0), 1: (None, 0, 0)}

    lab.write("orders", values(7, "later"), partition=1)
    code, found = status(lab.config, capsys)
    assert (code, found["lag"], codes(found)) == (1, 7, ["retention"])
    assert 35_000 < found["kept_seconds"] <= 36_000 and found["lag_seconds"] > 86_400
    main(["status", str(lab.config)])
    assert f"! the source may delete records of {lab.name}.orders-1 in " in capsys.readouterr().out
    # No Spark is started.
    command = [sys.executable, "-X", "importtime", "-m", "mirror_lib.cli", "status", str(lab.config)]
    done = subprocess.run(command, capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (done.returncode, done.stdout.count("\n") > 1) == (1, True)
    assert "pyspark" not in loaded and "deltalake" in loaded


def test_records_that_wait_for_an_open_transaction_are_named_by_every_command(
    lab: FlowLab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def printed_by(*command: str) -> Tuple[int, Dict[str, Any]]:
        capsys.readouterr()
        code = main([*command, str(lab.config), "--json"])
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])

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
    assert waiting.startswith(f"13 offsets of {lab.name}.orders-0 ") and f"transactional id {lab.name}" in waiting
    # The transaction is seconds old, whatever its records say.
    code, found = printed_by("status")
    assert (code, codes(found), found["lag"]) == (0, [], 0)
    (left,) = found["transactions"]
    assert (left["producer"], left["since"], left["held"]) == (f"transactional id {lab.name}", 0, 13)
    assert 0 <= time.time() - left["started"] < 300
    with monkeypatch.context() as patch:
        patch.setattr(facts, "HANGING_SECONDS", 0.0)
        assert codes(printed_by("status")[1]) == ["hanging transaction"]
    assert (printed_by("verify")[0], printed_by("verify", "--complete")[0]) == (0, 1)
    assert len(printed_by("verify")[1]["waiting"]) == len(printed_by("plan")[1]["waiting"]) == 1
    code, found = printed_by("cutover", "plan")
    assert code == 1 and [each["code"] for each in found["gates"] if "orders-0" in each["detail"]] == ["transactions"]
    producer.abort_transaction(30)
    assert lab.copy().waiting == ()
    assert [printed_by(*each)[0] for each in (["status"], ["verify", "--complete"], ["cutover", "plan"])] == [0, 0, 0]
    assert len(lab.remote_values("orders")) == 10


@pytest.mark.long
def test_retention_by_size_counts_what_is_not_copied(lab: FlowLab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.create("orders", retention_ms="-1", retention_bytes="100000")
    lab.write("orders", [b"%d" % number + b"x" * 100 for number in range(100)])
    _, found = status(lab.config, capsys)
    assert codes(found) == ["never ran"] and 80_000 < found["kept_bytes"] < 90_000
    lab.write("orders", [b"%d" % number + b"x" * 100 for number in range(1000)])
    _, found = status(lab.config, capsys)
    assert codes(found) == ["never ran", "retention"] and found["kept_bytes"] < 0
    assert "retention.bytes" in found["problems"][-1]["remedy"]
    main(["plan", str(lab.config), "--json"])
    (problem,) = json.loads(capsys.readouterr().out.splitlines()[-1])["problems"]
    assert problem["code"] == "retention" and "retention.bytes" in problem["remedy"]
    main(["doctor", str(lab.config), "--json"])
    checks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["level"] for each in checks if each["code"] == "retention"] == ["warning"]
    lab.copy()
    _, found = status(lab.config, capsys)
    assert (codes(found), found["kept_bytes"]) == ([], None)


def test_status_names_what_cannot_be_read(lab: FlowLab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.create("orders")
    lab.write("orders", values(10))
    lab.copy()
    text = lab.config.read_text()
    away = lab.directory / "away.yaml"
    away.write_text(text.replace(lab.source.bootstrap, "127.0.0.1:9"))
    asked = time.monotonic()
    code, found = status(away, capsys)
    assert (code, codes(found), found["run"]["outcome"]) == (2, ["unreadable"], "ok")
    # Far less than the 30 s of `admin.timeout.ms`.
    assert time.monotonic() - asked < 10
    assert "cannot reach" in found["problems"][0]["what"]

    commits = sorted((lab.directory / "state" / "offset_syncs" / "_delta_log").glob("*.json"))
    commits[-1].write_text("{")
    code, found = status(lab.config, capsys)
    assert (code, codes(found)) == (2, ["unreadable"])
    assert "offset_syncs" in found["problems"][0]["what"]

"""`mirror retention` on a real cluster: raised with a lag, recorded, and restored once all is copied."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from mirror_lib.cli import main
from tests.integration.conftest import Ground
from tests.lab.crash import CrashPoint, driver
from tests.lab.flow_lab import NOON, FlowLab, values

# The lab's records are of long ago.
AGE_DAYS = round((time.time() - NOON / 1000) / 86_400)
SHORT, DAYS = str((AGE_DAYS + 1) * 86_400_000), str(AGE_DAYS + 30)
RAISED = str((AGE_DAYS + 30) * 86_400_000)


@pytest.fixture
def lab(ground: Ground, topic_name: Callable[[str], str]) -> FlowLab:
    return FlowLab(*ground, topic_name("retention"))


def in_effect(lab: FlowLab, topic: str) -> Any:
    resource = ConfigResource("TOPIC", topic)
    admin = AdminClient({"bootstrap.servers": lab.source.bootstrap})
    return admin.describe_configs([resource])[resource].result(30)["retention.ms"].value


def retention(lab: FlowLab, capsys: pytest.CaptureFixture[str], *options: str) -> List[Dict[str, Any]]:
    capsys.readouterr()
    code = main(["retention", options[0], str(lab.config), *options[1:], "--json"])
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [dict(each, code=code) for each in found["topics"]]


def test_source_keeps_what_is_not_copied_until_it_is(lab: FlowLab, capsys: pytest.CaptureFixture[str]) -> None:
    short, copied = lab.create("orders", retention_ms=SHORT), lab.create("copied", retention_ms=SHORT)
    kept = lab.create("audit")  # for ever, as the cluster's default is
    for stem in ("orders", "audit", "copied"):
        lab.write(stem, values(10))
    lab.copy(topics=f'["{copied}"]')
    lab.settings["topics"] = f'["{lab.name}[.].*"]'
    shown = retention(lab, capsys, "raise", "--days", DAYS)
    assert {each["topic"] for each in shown} == {short} and in_effect(lab, short) == SHORT
    raised = retention(lab, capsys, "raise", "--days", DAYS, "--execute")
    assert [each["outcome"] for each in raised] == ["changed"]
    assert [in_effect(lab, each) for each in (short, copied, kept)] == [RAISED, SHORT, "-1"]
    waits = retention(lab, capsys, "restore", "--execute")
    assert [(each["code"], each["to"]) for each in waits] == [(1, RAISED)]
    lab.copy()
    restored = retention(lab, capsys, "restore", "--execute")
    assert {each["code"] for each in restored} == {0}
    assert in_effect(lab, short) == SHORT
    assert retention(lab, capsys, "restore", "--execute") == []


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_raise_that_was_killed_is_undone(
    lab: FlowLab, when: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    topic = lab.create("orders", retention_ms=SHORT)
    lab.write("orders", values(10))
    point = CrashPoint("mirror_lib.kafka.admin:ClusterTopics.alter_topic_configs", when, 1, token=tmp_path / "token")
    command = ["-m", "mirror_lib.cli", "retention", "raise", str(lab.config), "--days", DAYS, "--execute"]
    with driver(command, point) as dying:
        assert dying.wait() == -9, dying.output
    assert in_effect(lab, topic) == (SHORT if when == "before" else RAISED)
    lab.copy()
    (restored,) = retention(lab, capsys, "restore", "--execute")
    assert in_effect(lab, topic) == SHORT
    assert restored["outcome"] == ("left: changed since it was raised" if when == "before" else "changed")

"""YAML files: the same keys and values as MirrorMaker 2's, refused with a line where they are wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict

import pytest

from mirror_lib.config.loader import load
from mirror_lib.errors import ConfigError
from tests.lab.checkout import ROOT
from tests.unit.configs import IN_YAML, YAML, fields, read

SERVERS = '"a:9092"'


def test_the_two_sample_files_are_the_same_flow() -> None:
    ours = load(str(ROOT / "conf/mirror.yaml"), {})
    # MirrorMaker's one job writes checkpoints and heartbeats on the source; in YAML a key asks for them.
    theirs = load(str(ROOT / "conf/mm2.properties"), {})
    excluded = (r".*[\-\.]internal", r".*\.replica", "__.*")
    flows = tuple(replace(flow, checkpoints_in_run=True, topics_exclude=excluded) for flow in ours.flows)
    assert replace(ours, flows=flows) == replace(theirs, heartbeat_pairs=())
    assert [pair.name for pair in theirs.heartbeat_pairs] == ["backup->primary"]


OURS = "    delivery: at-least-once\n    on.error: skip\n    on.data.loss: continue\n    batch.max.seconds: 2.5\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (IN_YAML, {"topics": (".*",), "trigger": "availableNow", "warnings": ()}),
        (IN_YAML + "    tasks.max: 4\ntasks.max: 2\nreplication.factor: -1\nstate: /tmp/s\n",
            {"tasks_max": 4, "replication_factor": -1, "state": "/tmp/s"}),
        # Commas stand inside the items of a list; nested maps are dotted keys; servers may be a list.
        (IN_YAML + '    topics: ["a{1,3}", b]\n', {"topics": ("a{1,3}", "b")}),
        (IN_YAML + "    topics: a, b\n", {"topics": ("a", "b")}),
        (IN_YAML + "    topics: ''\n", {"topics": ()}),
        (IN_YAML.replace(SERVERS, f"{SERVERS}, consumer: {{isolation.level: read_uncommitted}}"),
            {"isolation_level": "read_uncommitted"}),
        (IN_YAML + "    refresh: {topics: {interval.seconds: 5}}\n", {"refresh_topics_interval": 5.0}),
        (IN_YAML + "trigger: 1 minute\n", {"trigger": "1 minutes"}),
        (IN_YAML + "trigger: 500 Milliseconds\n", {"trigger": "500 milliseconds"}),
        (IN_YAML + OURS + "    shared.remote.topics: true\n",
            {"delivery": "at-least-once", "on_error": "skip", "on_data_loss": "continue", "batch_max_seconds": 2.5,
             "shared_remote_topics": True}),
    ],
)  # fmt: skip
def test_keys_come_to_these_values(tmp_path: Path, text: str, wanted: Dict[str, Any]) -> None:
    assert fields(read(tmp_path, text, YAML), wanted) == wanted


def test_a_flow_can_be_switched_off_and_servers_may_be_a_list(tmp_path: Path) -> None:
    text = IN_YAML.replace(SERVERS, '["a:9092", "c:9093"]') + "    enabled: false\n  B->A:\n"
    (flow,) = read(tmp_path, text, YAML).flows
    assert (flow.name, flow.target.bootstrap_servers) == ("B->A", "a:9092,c:9093")


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mirror.yaml").write_bytes(b"\xff\xfe\x00")
    for name, words in (("x.txt", "cannot be read: No such"), ("mirror.yaml", "not UTF-8")):
        with pytest.raises(ConfigError, match=words):
            load(str(tmp_path / name), {})

"""YAML files: the same keys and values as MirrorMaker 2's, refused with a line where they are wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict

import pytest

from mirror_lib.config.loader import load
from mirror_lib.errors import ConfigError
from tests.lab.checkout import ROOT
from tests.unit.configs import IN_YAML, YAML, fields, read, refusal

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
        (IN_YAML + "trigger: 10 seconds\n", {"trigger": "10 seconds"}),
        (IN_YAML + "trigger: 1 minute\n", {"trigger": "1 minutes"}),
        (IN_YAML + "trigger: 500 Milliseconds\n", {"trigger": "500 milliseconds"}),
        (IN_YAML + "trigger: AvailableNow\n", {"trigger": "availableNow"}),
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (IN_YAML + "    topcs: x\n", "A->B.topcs is not a setting; did you mean A->B.topics? (mirror.yaml:6)"),
        (IN_YAML + "topics: x\ntopics: y\n", "topics is given twice, first at mirror.yaml:6 (mirror.yaml:7)"),
        (IN_YAML + "    a: 1\n    a: 2\n", "a is given twice, first at mirror.yaml:6 (mirror.yaml:7)"),
        (IN_YAML + "  A -> B: {}\n", "A->B.enabled is given twice, first at mirror.yaml:5 (mirror.yaml:6)"),
        (IN_YAML + "    tasks.max: 1\n    tasks: {max: 2}\n", "A->B.tasks.max is given twice"),
        (IN_YAML + "  A->C: {}\n", "A->C names an unknown cluster, C; the clusters are A, B (mirror.yaml:6)"),
        (IN_YAML + "  AB: {}\n", "flow AB must be written A->B (mirror.yaml:6)"),
        (IN_YAML + "  A->A: {}\n", "A->A: source and target are the same cluster"),
        (IN_YAML + "    tasks.max: [1, 2]\n", "A->B.tasks.max must be one value, not a list"),
        (IN_YAML + "    tasks.max:\n", "tasks.max has no value"),
        (IN_YAML + "    topics: [a, [b]]\n", "topics must be a list of plain values"),
        (IN_YAML + "    topics: *.internal\n", "quote a value that begins with * (mirror.yaml:6)"),
        (IN_YAML + "    topics: &x a\n", "anchors are not used here"),
        (IN_YAML + "    topics: '*.internal'\n", "write '.*' for anything"),
        (IN_YAML + "    trigger: availableNow\n", "trigger is for the whole file"),
        (IN_YAML.replace("A: {", "A: {tasks.max: 2, "), "A.tasks.max is not a setting of a cluster; write A->B."),
        (IN_YAML + "x: [\n", "not valid YAML"),
        ("clusters: [A, B]\n", "clusters must be a map, `key: value` on each line (mirror.yaml:1)"),
        ("just text", "the file must be a map"),
        ("", "no flow is enabled; list A->B under flows (mirror.yaml)"),
        (IN_YAML.replace('{bootstrap.servers: "a:9092"}', ""), "cluster A has no bootstrap.servers"),
        (IN_YAML + "? [a, b]\n: c\n", "a key must be plain text"),
        (IN_YAML + "state: !!python/object/apply:os.system ['touch pwned']\n", "state must be one value"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text, YAML)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [("x.txt", None, "cannot be read: No such"), ("none.yaml", None, "cannot be read: No such"),
     ("mirror.yaml", b"\xff\xfe\x00", "not UTF-8")],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, content: Any, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load(str(tmp_path / name), {})

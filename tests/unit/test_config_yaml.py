"""YAML files: the same keys and values as MirrorMaker 2's, refused with a line where they are wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import ConfigError

BASE = """\
clusters:
  A: {bootstrap.servers: "a:9092"}
  B: {bootstrap.servers: "b:9092"}
flows:
  A->B:
"""
REPOSITORY = Path(__file__).parents[2]


def read(folder: Path, text: str) -> MirrorConfig:
    path = folder / "mirror.yaml"
    path.write_text(text, encoding="utf-8")
    return load(str(path), {})


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    return str(caught.value).replace(str(folder) + "/", "")


def test_the_two_sample_files_are_the_same_flow() -> None:
    ours = load(str(REPOSITORY / "conf/mirror.yaml"), {})
    # MirrorMaker's one job writes checkpoints and heartbeats on the source; in YAML a key asks for them.
    theirs = load(str(REPOSITORY / "conf/mm2.properties"), {})
    excluded = (r".*[\-\.]internal", r".*\.replica", "__.*")
    flows = tuple(replace(flow, checkpoints_in_run=True, topics_exclude=excluded) for flow in ours.flows)
    assert replace(ours, flows=flows) == replace(theirs, heartbeat_pairs=())
    assert [pair.name for pair in theirs.heartbeat_pairs] == ["backup->primary"]


def test_a_listed_flow_runs_with_mirrormakers_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, BASE)
    assert [flow.name for flow in config.flows] == ["A->B"]
    assert config.flows[0].topics == (".*",)
    assert config.trigger == "availableNow"
    assert config.warnings == ()


def test_top_level_keys_are_defaults_that_a_flow_overrides(tmp_path: Path) -> None:
    text = BASE + "    tasks.max: 4\n  B->A: {}\ntasks.max: 2\nreplication.factor: -1\nstate: /tmp/s\nname: x\n"
    config = read(tmp_path, text)
    assert [(f.tasks_max, f.replication_factor) for f in config.flows] == [(4, -1), (2, -1)]
    assert (config.state, config.name) == ("/tmp/s", "x")


def test_a_flow_can_be_switched_off(tmp_path: Path) -> None:
    assert [f.name for f in read(tmp_path, BASE + "    enabled: false\n  B->A:\n").flows] == ["B->A"]


def test_a_list_keeps_commas_inside_its_items(tmp_path: Path) -> None:
    assert read(tmp_path, BASE + '    topics: ["a{1,3}", b]\n').flows[0].topics == ("a{1,3}", "b")
    assert read(tmp_path, BASE + "    topics: a, b\n").flows[0].topics == ("a", "b")
    assert read(tmp_path, BASE + "    topics: ''\n").flows[0].topics == ()


def test_nested_maps_are_dotted_keys(tmp_path: Path) -> None:
    text = BASE.replace('"a:9092"', '"a:9092", consumer: {isolation.level: read_uncommitted}')
    assert read(tmp_path, text).flows[0].isolation_level == "read_uncommitted"
    text = BASE + "    refresh: {topics: {interval.seconds: 5}}\n"
    assert read(tmp_path, text).flows[0].refresh_topics_interval == 5.0


def test_servers_may_be_a_list(tmp_path: Path) -> None:
    config = read(tmp_path, BASE.replace('"a:9092"', '["a:9092", "c:9093"]'))
    assert config.flows[0].source.bootstrap_servers == "a:9092,c:9093"


@pytest.mark.parametrize(
    "given, kept",
    [("10 seconds", "10 seconds"), ("1 minute", "1 minutes"), ("500 Milliseconds", "500 milliseconds"),
     ("AvailableNow", "availableNow")],
)
def test_triggers_are_read_as_spark_says_them(tmp_path: Path, given: str, kept: str) -> None:
    assert read(tmp_path, BASE + f"trigger: {given}\n").trigger == kept


def test_our_own_settings_are_read(tmp_path: Path) -> None:
    text = BASE + (
        "    delivery: at-least-once\n    on.error: skip\n    on.data.loss: continue\n"
        "    batch.max.seconds: 2.5\n    shared.remote.topics: true\n"
    )
    flow = read(tmp_path, text).flows[0]
    assert (flow.delivery, flow.on_error, flow.on_data_loss) == ("at-least-once", "skip", "continue")
    assert (flow.batch_max_seconds, flow.shared_remote_topics) == (2.5, True)


@pytest.mark.parametrize(
    "text, sentence",
    [
        (BASE + "    topcs: x\n", "A->B.topcs is not a setting; did you mean A->B.topics? (mirror.yaml:6)"),
        (BASE + "topics: x\ntopics: y\n", "topics is given twice, first at mirror.yaml:6 (mirror.yaml:7)"),
        (BASE + "    a: 1\n    a: 2\n", "a is given twice, first at mirror.yaml:6 (mirror.yaml:7)"),
        (BASE + "  A -> B: {}\n", "A->B is given twice"),
        (BASE + "    tasks.max: 1\n    tasks: {max: 2}\n", "A->B.tasks.max is given twice"),
        (BASE + "  A->C: {}\n", "A->C names an unknown cluster, C; the clusters are A, B (mirror.yaml:6)"),
        (BASE + "  AB: {}\n", "flow AB must be written A->B (mirror.yaml:6)"),
        (BASE + "  A->A: {}\n", "A->A: source and target are the same cluster"),
        (BASE + "    tasks.max: [1, 2]\n", "A->B.tasks.max must be one value, not a list"),
        (BASE + "    tasks.max:\n", "tasks.max has no value"),
        (BASE + "    topics: [a, [b]]\n", "topics must be a list of plain values"),
        (BASE + "    topics: *.internal\n", "quote a value that begins with * (mirror.yaml:6)"),
        (BASE + "    topics: &x a\n", "anchors are not used here"),
        (BASE + "    topics: '*.internal'\n", "write '.*' for anything"),
        (BASE + "    trigger: availableNow\n", "trigger is for the whole file"),
        (BASE.replace("A: {", "A: {tasks.max: 2, "),
            "A.tasks.max is not a setting of a cluster; write A->B."),
        (BASE + "x: [\n", "not valid YAML"),
        ("clusters: [A, B]\n", "clusters must be a map, `key: value` on each line (mirror.yaml:1)"),
        ("just text", "the file must be a map"),
        ("", "no flow is enabled; list A->B under flows (mirror.yaml)"),
        (BASE.replace('{bootstrap.servers: "a:9092"}', ""), "cluster A has no bootstrap.servers"),
        (BASE + "? [a, b]\n: c\n", "a key must be plain text"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in refusal(tmp_path, text)


def test_tags_build_no_objects(tmp_path: Path) -> None:
    hostile = BASE + "state: !!python/object/apply:os.system ['touch pwned']\n"
    assert "state must be one value" in refusal(tmp_path, hostile)


@pytest.mark.parametrize("name, sentence", [(name, "cannot be read: No such") for name in ("x.txt", "none.yaml")])
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load(str(tmp_path / name), {})


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(str(path), {})

"""`mirror convert`: what is written means what was read, secrets stay references, and every change is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.cli import main
from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig
from mirror_lib.config.settings import BY_NAME, SETTINGS, TOP, Setting
from mirror_lib.config.values import START_POSITION
from mirror_lib.config.yaml_writer import convert
from tests.lab.checkout import ROOT
from tests.lab.examples import CONNECTORS, MM2_EXAMPLES, filled_in
from tests.unit.test_config_connectors import connector
from tools.docs.mm2_keys import CHECKPOINT, HEARTBEAT, SOURCE

HEAD = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
FILLED_IN = [*([file] for file in MM2_EXAMPLES), CONNECTORS]
OURS = [ROOT / "conf" / "mirror.yaml", ROOT / "conf" / "mm2.properties", *(ROOT / "conf" / "examples").rglob("*.yaml")]
EXAMPLES = [*([file] for file in OURS), *FILLED_IN]


def meaning(config: MirrorConfig) -> MirrorConfig:
    """The configuration without what it says about its own spelling."""
    return replace(config, warnings=())


def written(folder: Path, environ: Dict[str, str], *paths: str) -> Path:
    path = folder / "written.yaml"
    path.write_text(convert(paths, environ).text, encoding="utf-8")
    return path


def file_of(folder: Path, text: str) -> str:
    path = folder / "mm2.properties"
    path.write_bytes(text.encode("iso-8859-1"))
    return str(path)


def text_of(folder: Path, lines: str, **environ: str) -> str:
    """The YAML that these lines of an MM2 file become. It is checked to mean the same."""
    given_path = file_of(folder, HEAD + lines)
    result = convert(given_path, environ).text
    path = folder / "written.yaml"
    path.write_text(result, encoding="utf-8")
    assert meaning(load(str(path), environ)) == meaning(load(given_path, environ))
    return result


# Any value that a setting can have, by the name of its kind; of other kinds the words they allow, or the default.
PRINTED = st.characters(min_codepoint=33, max_codepoint=255, exclude_categories=["Cc"], exclude_characters="\\")
TEXTS = st.text(PRINTED, min_size=1, max_size=9)
PATTERN_LISTS = st.lists(st.sampled_from(["orders", "pay.*", "a|b", "x[0-9]+", "^foo", "- a", "a: b"]), max_size=4)
VALUES = {
    "true or false": st.sampled_from(["true", "false", "TRUE"]),
    "seconds": st.integers(1, 10**6).map(str),
    "milliseconds": st.integers(1, 10**6).map(str),
    "number": st.integers(1, 9).map(str),
    "list of patterns": PATTERN_LISTS.map(", ".join),
    "text": st.from_regex(r"[a-z0-9_-]{1,9}", fullmatch=True).filter(lambda text: text not in "A B"),
    START_POSITION.name: st.sampled_from(["latest", "2026-01-01T00:00:00Z", "group g", "orders:0=100, orders:1=250"]),
    "Spark SQL": st.sampled_from(["*", "'a # b' <> value", "*, null as value"]),
    "module:function": st.just("rules:mask"),
    "list or map": st.sampled_from(["a -> b", "a(.) -> b$1, c -> d e"]),
    "source, key or a number": st.sampled_from(["source", "key", "12"]),
    "availableNow or a time": st.sampled_from(["availableNow", "10 seconds", "1 minute"]),
}
CLIENT_KEYS = ("linger.ms", "ssl.key.password", "sasl.jaas.config", "own.key")


def values_of(setting: Setting) -> st.SearchStrategy[str]:
    words = [word for word in setting.kind.name.split(" or ") if accepted(setting, word)]
    return VALUES.get(setting.kind.name, st.sampled_from(words or [setting.default]))


def accepted(setting: Setting, word: str) -> bool:
    try:
        setting.kind.parse(word)
    except ValueError:
        return False
    return True


@st.composite
def lines_of_settings(draw: st.DrawFn) -> List[str]:
    rows = draw(st.lists(st.sampled_from(SETTINGS), max_size=12, unique_by=lambda row: row.name))
    lines = []
    for row in rows:
        # An engine that is named, keys that decide in one, or an alias may contradict what else is drawn.
        if row.name in ("clusters", "enabled", "engine", "partition.counts.differ", "source.cluster.alias"):
            continue
        scope = "" if row.level == TOP else draw(st.sampled_from(["", "A->B.", "B->A."]))
        lines.append(f"{scope}{row.name} = {draw(values_of(row))}")
    for key in draw(st.lists(st.sampled_from(CLIENT_KEYS), unique=True)):
        scope = draw(st.sampled_from(["A.", "B.producer.", "A->B.source.consumer.", "A->B.producer.override."]))
        lines.append(f"{scope}{key} = {draw(TEXTS)}")
    return lines


@settings(max_examples=80)
@given(lines=lines_of_settings())
def test_any_settings_mean_the_same_in_yaml(lines: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any")
    path = file_of(folder, HEAD + "\n".join(lines))
    config = load(path, {})
    again = written(folder, {}, path)
    assert meaning(load(str(again), {})) == meaning(config)
    assert meaning(load(str(written(folder, {}, str(again))), {})) == meaning(config)


@pytest.mark.parametrize("files", EXAMPLES, ids=lambda files: files[0].relative_to(ROOT / "conf").as_posix())
def test_every_example_means_the_same_in_yaml(
    files: List[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(files[0].parent))
    paths = filled_in(files, ["a:9092", "b:9092"], tmp_path) if files in FILLED_IN else [str(path) for path in files]
    assert meaning(load(str(written(tmp_path, {}, *paths)), {})) == meaning(load(paths, {}))


def test_connectors_become_one_file(tmp_path: Path) -> None:
    paths = []
    for kind in ("Source", "Checkpoint", "Heartbeat"):
        paths.append(str(tmp_path / f"{kind}.json"))
        Path(paths[-1]).write_text(json.dumps(connector(kind, tasks_max=3)))
    config = load(paths, {})
    again = written(tmp_path, {}, *paths)
    assert meaning(load(str(again), {})) == meaning(config)
    assert "  A:\n    bootstrap.servers: a:9092\n" in again.read_text()


@st.composite
def three_connectors(draw: st.DrawFn) -> List[Dict[str, str]]:
    """The three connectors of a flow, each with some of the keys that it reads."""
    found = []
    for kind, keys in (("Source", SOURCE), ("Checkpoint", CHECKPOINT), ("Heartbeat", HEARTBEAT)):
        names = draw(st.lists(st.sampled_from([key for key in keys if key in BY_NAME]), unique=True, max_size=6))
        found.append({**connector(kind), **{name: draw(values_of(BY_NAME[name])) for name in names}})
    return found


@settings(max_examples=40)
@given(configs=three_connectors(), as_list=st.booleans())
def test_any_connectors_mean_the_same_in_yaml(
    configs: List[Dict[str, str]], as_list: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("connectors")
    paths = []
    for number, content in enumerate([configs] if as_list else configs):
        paths.append(str(folder / f"{number}.json"))
        Path(paths[-1]).write_text(json.dumps(content))
    assert meaning(load(str(written(folder, {}, *paths)), {})) == meaning(load(paths, {}))


def test_secrets_stay_references_and_none_is_written_out(tmp_path: Path) -> None:
    text = text_of(
        tmp_path,
        "config.providers = vault\nconfig.providers.vault.class = org.x.EnvVarConfigProvider\n"
        "A.ssl.key.password = ${env:PW}\nB.ssl.key.password = ${vault:PW}\nA->B.topics = ${env:TOPICS}\n",
        PW="hunter2",
        TOPICS="a,b",
    )
    assert "hunter2" not in text
    assert text.count('ssl.key.password: "${env:PW}"') + text.count("ssl.key.password: ${env:PW}") == 2
    assert "topics: ${env:TOPICS}" in text


def test_a_machine_without_the_secrets_can_convert(tmp_path: Path) -> None:
    conversion = convert(file_of(tmp_path, HEAD + "A.ssl.key.password = ${env:NOT_HERE}\n"), {})
    assert "ssl.key.password: ${env:NOT_HERE}" in conversion.text
    assert any("values were not checked" in warning and "${env:NOT_HERE}" in warning for warning in conversion.warnings)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("topics.blacklist = a", "topics.blacklist is the old name of topics.exclude and is read as that"),
        ("Replication.Factor = 1", "has capitals; it should be replication.factor"),
        ("A->B.sync.group.offsets.interval.ms = 30000", "    sync.group.offsets.interval.seconds: 30"),
        ('topics.exclude = "*.internal"', "'*' at the start of a pattern is read as '.*'"),
        ("tasks.max = 2", "# Not as in MirrorMaker: one task copies many partitions at once"),
        ("group.id = x", "group.id: ignored: there is no Connect worker"),
        ("A.topics = x", "A.topics: ignored: it is not a setting of a cluster; write A->B.topics"),
        ("consumer.client.id = x", "consumer.client.id: MirrorMaker 2 drops it"),
        ("source.cluster.alias = east", "source.cluster.alias: east"),
        ("replication.policy.separator =\nsource.cluster.alias =", 'source.cluster.alias: ""'),
        ("A.ssl.key.password = clear", "# A secret in clear: ${env:NAME} or ${file:/path:key} would keep it out"),
        ("", "# MirrorMaker never ends."),
        ("", "\nemit.heartbeats.enabled: true\n"),
        ("", "# MirrorMaker's default up to 3.9, as the file has none. 4.x copies a topic such as orders.internal"),
        ("A->B.sync.group.offsets.enabled = true ", "    sync.group.offsets.enabled: true\n"),
        ("A.client.rack = a:9092 ", "    client.rack: a:9092\n"),
        ("A.ssl.key.password = ends with a blank ", '    ssl.key.password: "ends with a blank "\n'),
        ("", "# Records of aborted transactions are left out."),
        ("B->A.topics = x", "    # The file does not enable it.\n    enabled: false\n"),
    ],
)
def test_what_changed_is_said_in_a_comment(lines: str, said: str, tmp_path: Path) -> None:
    assert said in text_of(tmp_path, lines + "\n").replace("\n#     ", " ").replace("\n    #   ", " ")


def test_bare_enabled_lists_every_pair(tmp_path: Path) -> None:
    text = text_of(tmp_path, "enabled = true\nA->B.enabled = false\n")
    assert "  A->B:\n    enabled: false\n  B->A: {}\n" in text


def test_comments_cannot_break_the_file(tmp_path: Path) -> None:
    assert "evil" in text_of(tmp_path, "A.consumer.x\\nevil\\u0007 = 1\n")


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = file_of(tmp_path, HEAD), tmp_path / "mirror.yaml"
    out.write_text("mine")
    assert main(["convert", source, "-o", str(out)]) == 2
    reported = f"error: MIR-101: {out} is there already (give another name, or --force to replace it)\n"
    assert capsys.readouterr().err == reported
    assert out.read_text() == "mine"
    assert main(["convert", source, "-o", str(out), "--force"]) == 0
    assert load(str(out), {}).flows[0].name == "A->B"
    assert capsys.readouterr().out == ""


def test_the_file_is_readable_for_no_more_people_than_its_source(tmp_path: Path) -> None:
    source, out = Path(file_of(tmp_path, HEAD)), tmp_path / "mirror.yaml"
    source.chmod(0o600)
    assert main(["convert", str(source), "-o", str(out)]) == 0
    assert out.stat().st_mode & 0o777 == 0o600


def test_standard_output_is_the_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = file_of(tmp_path, HEAD + "topics.blacklist = a\n")
    assert main(["convert", source]) == 0
    reported = capsys.readouterr()
    assert reported.out == convert(source, {}).text
    assert "warning: topics.blacklist is the old name" in reported.err
    assert main(["convert", source, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["yaml"] == reported.out and document["warnings"]

"""What the pages say can be done: their examples load, their commands parse, their paths, links and figures exist."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, List, Sequence

import pytest

from mirror_lib import cli
from mirror_lib.config.loader import load
from mirror_lib.config.settings import BY_NAME
from mirror_lib.errors import MirrorError
from tests.lab.two_clusters import EXAMPLE, NAMES, file_for, wanted_ports

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "conf").rglob("*.md")])
FOLDERS = ("conf", "docs", "jobs", "locks", "mirror_lib", "tests", "tools")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FILES = {
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.*"), *(p for folder in FOLDERS for p in (ROOT / folder).rglob("*"))]
}
# A folder under `state:`, not in the checkout.
NOT_HERE = {"checkpoints/"}
KAFKAS_OWN = re.compile(r"(kafka|connect)-[a-z-]+\.sh")
# What the pages' examples have in the environment.
LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="x";'
LOGINS = {"PRIMARY_JAAS": LOGIN, "BACKUP_JAAS": LOGIN}
# Words before a colon in backticks that are no keys.
VERDICTS = ("held", "untranslatable")


@dataclass(frozen=True)
class Page:
    """A page cut into fenced blocks, `(language, text)`, and the prose between them."""

    name: str
    text: str

    @property
    def blocks(self) -> List[List[str]]:
        found = re.findall(r"^( *)```(\w*)\n(.*?)^ *```$", self.text, re.MULTILINE | re.DOTALL)
        return [[language, re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)] for indent, language, body in found]

    @property
    def prose(self) -> str:
        return re.sub(r"^ *```.*?^ *```$", "", self.text, flags=re.MULTILINE | re.DOTALL)

    @property
    def spans(self) -> List[str]:
        """What stands in backticks."""
        return re.findall(r"`([^`]+)`", self.prose)

    def commands(self, program: str) -> Iterator[List[str]]:
        """Arguments of each command line that runs `program`, from blocks without a language and from backticks."""
        shell = "".join(body for language, body in self.blocks if not language)
        lines = shell.replace("\\\n", "").split("\n")
        for line in [*lines, *self.spans]:
            words = shlex.split(re.sub(r"\s#.*", "", line)) if program in line.split()[:-1] else []
            if program in words and all("=" in word for word in words[: words.index(program)]):
                yield words[words.index(program) + 1 :]


def read(path: Path) -> Page:
    return Page(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def page_named(name: str) -> Page:
    return read(ROOT / name)


def wrong_mirror_commands(page: Page) -> List[List[str]]:
    """Commands that the real parser refuses. In a sentence `mirror run` alone names the command. The history also names
    commands that are gone."""
    found = list(page.commands("mirror"))
    if page.name == "CHANGELOG.md":
        found = [words for words in found if cli.replaced(words) is None]
    return [words for words in found if not parses(words) and not (len(words) == 1 and parses([*words, "CONFIG"]))]


def wrong_jobs(page: Page) -> List[List[str]]:
    """`./spark-submit.sh [OPTIONS] JOB CONFIG` with a job that is not there, or arguments that it refuses."""
    found = []
    for words in page.commands("./spark-submit.sh"):
        at = next((n for n, word in enumerate(words) if word.startswith("jobs/")), None)
        command = "translate" if at is not None and "translate" in words[at] else "run"
        if at is None or words[at] not in FILES or not parses([command, *words[at + 1 :]]):
            found.append(words)
    return found


def parses(words: List[str]) -> bool:
    try:
        cli.command_line().parse_args(words)
    except SystemExit as end:
        return end.code == 0
    return True


def wrong_make_commands(page: Page) -> List[str]:
    """Targets and variables that the Makefile does not have."""
    targets = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
    variables = set(re.findall(r"^#   ([A-Z]+)=", MAKEFILE, re.MULTILINE))
    words = [word for words in page.commands("make") for word in words]
    return [word for word in words if word.partition("=")[0] not in (variables if "=" in word else targets)]


def dead_links(page: Page) -> List[str]:
    links = re.findall(r"\]\(([^)\s]+)\)", page.prose)
    return [link for link in links if "://" not in link and not leads_somewhere(page, *link.partition("#")[::2])]


def leads_somewhere(page: Page, path: str, anchor: str) -> bool:
    file = (ROOT / page.name).parent / path if path else ROOT / page.name
    return file.exists() and (not anchor or anchor in anchors(read(file.resolve())))


def anchors(page: Page) -> List[str]:
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.prose, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def missing_paths(page: Page) -> List[str]:
    """Files and folders in backticks and in drawings of the tree that the checkout does not have."""
    trees = [body for language, body in page.blocks if language == "text" and "mirror_lib/" in body]
    words = page.spans + [word for tree in trees for line in tree.splitlines() for word in line.split("  ")[:2]]
    names = [name for word in words for name in word.split()]
    files = [name for name in names if re.fullmatch(r"[\w./-]+\.(py|sh|yaml|properties|toml|md)", name)]
    # What is on a node's own folders is not the checkout's.
    files = [name for name in files if not KAFKAS_OWN.fullmatch(name) and not name.startswith(("/etc/", "/opt/"))]
    folders = [name for name in names if re.fullmatch(r"\.?\w[\w-]*/", name) and name not in NOT_HERE]
    return [name for name in [*files, *folders] if not exists(re.sub(r"^\./", "", name).rstrip("/"))]


def exists(name: str) -> bool:
    return any(path == name or path.endswith(f"/{name}") for path in FILES) or name in FOLDERS


def wrong_settings(page: Page) -> List[str]:
    """`key: value` in backticks with a key that is not one, or a plain value that it does not take."""
    found = []
    for span in page.spans:
        key, _, value = span.partition(": ")
        is_setting = value and re.fullmatch(r"[a-z.]+", key) and value[0] not in "[{" and key not in VERDICTS
        if is_setting and not takes(key, value.strip('"')):
            found.append(span)
    return found


def takes(key: str, value: str) -> bool:
    if key not in BY_NAME:
        return False
    try:
        BY_NAME[key].kind.parse(value)
    except ValueError:
        return False
    return True


def on_every_page(check: Callable[[Page], Sequence[object]]) -> List[str]:
    """What `check` finds, with the page's name before it."""
    return [f"{page.name}: {found}" for page in map(read, PAGES) for found in check(page)]


def test_commands_on_pages_parse() -> None:
    assert on_every_page(wrong_mirror_commands) == []
    assert on_every_page(wrong_jobs) == []
    assert on_every_page(wrong_make_commands) == []


def test_links_and_paths_on_pages_lead_somewhere() -> None:
    assert on_every_page(dead_links) == []
    assert on_every_page(missing_paths) == []


def test_settings_named_with_a_value_on_pages_take_it() -> None:
    assert on_every_page(wrong_settings) == []


def wrong_examples(page: Page, folder: Path) -> List[str]:
    """The first line of each fenced YAML, properties or JSON file that does not load, and why."""
    found = []
    for language, body in page.blocks:
        file = folder / f"example.{language}"
        try:
            if language in ("yaml", "properties"):
                file.write_text(body, encoding="utf-8")
                assert load(str(file), LOGINS).flows, "no flows"
            if language == "json":
                assert json.loads(body), "nothing in it"
        except (MirrorError, ValueError, AssertionError) as error:
            found.append(f"{body.splitlines()[0]}: {error}")
    return found


def test_example_files_on_pages_load(tmp_path: Path) -> None:
    assert on_every_page(lambda page: wrong_examples(page, tmp_path)) == []


def test_readme_shows_the_smallest_example_file(tmp_path: Path) -> None:
    example = tmp_path / "mirror.yaml"
    example.write_text(next(body for language, body in page_named("README.md").blocks if language == "yaml"))
    assert load(str(example), {}) == load(str(ROOT / "conf/mirror.yaml"), {})


def test_clusters_to_try_things_on_are_where_the_example_file_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PORTS", raising=False)
    (flow,) = load(str(ROOT / "conf/mirror.yaml"), {}).flows
    servers = [cluster.bootstrap_servers for cluster in (flow.source, flow.target)]
    assert servers == [f"localhost:{port}" for port in wanted_ports()]
    assert [cluster.alias for cluster in (flow.source, flow.target)] == list(NAMES)


def test_clusters_to_try_things_on_at_other_ports_come_with_a_file_that_finds_them(tmp_path: Path) -> None:
    assert file_for({"primary": "localhost:9092", "backup": "localhost:9192"}, tmp_path) == EXAMPLE
    (flow,) = load(str(file_for({"primary": "localhost:9192", "backup": "localhost:1"}, tmp_path)), {}).flows
    assert (flow.source.bootstrap_servers, flow.target.bootstrap_servers) == ("localhost:9192", "localhost:1")
    assert flow.topics == load(str(EXAMPLE), {}).flows[0].topics

"""What the pages say can be done: their examples load, their commands parse, their links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, List, Sequence

from mirror_lib import cli
from mirror_lib.config.loader import load
from mirror_lib.errors import MirrorError

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "conf").rglob("*.md")])
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
# What the pages' examples have in the environment.
LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="x";'
LOGINS = {"PRIMARY_JAAS": LOGIN, "BACKUP_JAAS": LOGIN}


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

    def commands(self, program: str) -> Iterator[List[str]]:
        """Arguments of each command line that runs `program`, from blocks without a language and from backticks."""
        shell = "".join(body for language, body in self.blocks if not language)
        for line in [*shell.replace("\\\n", "").split("\n"), *re.findall(r"`([^`]+)`", self.prose)]:
            words = shlex.split(re.sub(r"\s#.*", "", line)) if program in line.split()[:-1] else []
            if program in words and all("=" in word for word in words[: words.index(program)]):
                yield words[words.index(program) + 1 :]


def read(path: Path) -> Page:
    return Page(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


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
        if at is None or not (ROOT / words[at]).is_file() or not parses([command, *words[at + 1 :]]):
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
    """Whether the file is there and, where an anchor is given, has a heading that GitHub gives that anchor."""
    file = (ROOT / page.name).parent / path if path else ROOT / page.name
    headings = re.findall(r"^#+ (.*)$", read(file.resolve()).prose, re.MULTILINE) if anchor and file.exists() else []
    anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return file.exists() and (not anchor or anchor in anchors)


def on_every_page(check: Callable[[Page], Sequence[object]]) -> List[str]:
    """What `check` finds, with the page's name before it."""
    return [f"{page.name}: {found}" for page in map(read, PAGES) for found in check(page)]


def test_commands_on_pages_parse() -> None:
    assert on_every_page(wrong_mirror_commands) == []
    assert on_every_page(wrong_jobs) == []
    assert on_every_page(wrong_make_commands) == []


def test_links_on_pages_lead_somewhere() -> None:
    assert on_every_page(dead_links) == []


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
    example.write_text(next(body for language, body in read(ROOT / "README.md").blocks if language == "yaml"))
    assert load(str(example), {}) == load(str(ROOT / "conf/mirror.yaml"), {})

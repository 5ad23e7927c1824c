"""Pages and pictures are what their generators write, and the page of MirrorMaker's keys is complete and true."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, FrozenSet, List, Sequence
from xml.etree import ElementTree

import pytest

from mirror_lib.cli import command_line
from mirror_lib.config.client_names import CLIENT_PROPERTIES
from mirror_lib.config.loader import load
from mirror_lib.config.mm1_reader import OPTIONS
from mirror_lib.config.settings import BY_NAME
from mirror_lib.errors import ConfigError
from tests.lab.checkout import ROOT
from tools.docs import cli, json_documents, parity, settings, starts, tables
from tools.docs.parity import key_row, mirrormakers_keys, page
from tools.docs.pictures import FOLDER, pictures
from tools.kafka_names import CLIENTS, LIST, MODULE, module_of, names_by_class

PAGES: Dict[str, Callable[[], str]] = {
    "reference/cli": cli.page,
    "reference/json": json_documents.page,
    "reference/mirrormaker-keys": parity.page,
    "reference/settings": settings.page,
    "project/starts": starts.page,
}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_up_to_date(name: str) -> None:
    made_by = f"run: python -m {PAGES[name].__module__} > docs/{name}.md"
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == PAGES[name](), made_by


def test_page_of_tables_has_their_columns() -> None:
    text = tables.PAGE.read_text(encoding="utf-8")
    assert text == tables.page(text), "run: python -m tools.docs.tables"


def test_pictures_are_what_is_drawn() -> None:
    drawn = pictures()
    assert {name: (FOLDER / name).read_text(encoding="utf-8") for name in drawn} == drawn
    for text in drawn.values():
        ElementTree.fromstring(text)


def test_every_command_with_json_is_on_the_page() -> None:
    text = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    named = [name for name, parser in cli.commands(command_line()) if "--json" in parser._option_string_actions]
    forms = {name: (f"## {name}", f"`{name}`", f"`{name.partition(' ')[2]}`") for name in named}
    assert [name for name in named if not any(each in text for each in forms[name])] == []


HEAD = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"
ROWS = mirrormakers_keys()


def kafkas_keys() -> Dict[str, FrozenSet[str]]:
    """Key names by the ConfigDef that has them; without the clients'."""
    return {title: names for title, names in names_by_class(LIST.read_text("utf-8")).items() if title not in CLIENTS}


def has_row(key: str, rows: Sequence[str]) -> bool:
    return any(key == row or (row.endswith("*") and key.startswith(row[:-1])) for row in rows)


def without_row(title: str, rows: Sequence[str]) -> List[str]:
    # Of a worker's own keys, the ones of its clients are what any client has.
    of_clients = CLIENT_PROPERTIES if title == "DistributedConfig" else frozenset()
    return sorted(key for key in kafkas_keys()[title] if not has_row(key, rows) and key not in of_clients)


@pytest.mark.parametrize("title", kafkas_keys())
def test_every_key_that_kafka_knows_has_a_row(title: str) -> None:
    assert without_row(title, ROWS) == []


def test_the_loaders_names_of_client_properties_are_those_of_the_list() -> None:
    assert MODULE.read_text("utf-8") == module_of(LIST.read_text("utf-8")), "run: python -m tools.kafka_names"
    assert {"max.poll.records", "linger.ms", "default.api.timeout.ms"} <= CLIENT_PROPERTIES


def test_every_option_of_mirrormaker_1_has_a_row() -> None:
    assert not [option.name for option in OPTIONS if f"`--{option.name}`" not in page()]


# Read by the reader of connectors, or what every file needs.
ELSEWHERE = ("clusters", "name", "connector.class", "source.cluster.alias", "target.cluster.alias", "config.providers*")
EXAMPLES = {"ssl.*": "ssl.protocol", "sasl.*": "sasl.mechanism"}
VALUES = {"bootstrap.servers": "a:9092", "security.protocol": "PLAINTEXT", "enabled": "true"}


@pytest.mark.parametrize("key", [row for row in ROWS if row not in ELSEWHERE])
def test_what_the_page_says_of_a_key_is_what_the_loader_does(key: str, tmp_path: Path) -> None:
    name = EXAMPLES.get(key, key.replace(".*", ".x").rstrip("*"))
    value = VALUES.get(key) or (BY_NAME[name].default if name in BY_NAME else "") or "x"
    path = tmp_path / "mm2.properties"
    path.write_text(f"{HEAD}{name} = {value}\n")
    if key_row(key)[1] == "refused":
        with pytest.raises(ConfigError, match=f"{name} cannot be honoured"):
            load(str(path), {})
        return
    reported = "\n".join(load(str(path), {}).warnings)
    assert (f"{name}: ignored: " in reported) == (key_row(key)[1] == "ignored")

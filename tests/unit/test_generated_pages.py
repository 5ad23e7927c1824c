"""Pages are what their generators write, and the page of MirrorMaker's keys is true."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict

import pytest

from mirror_lib.config.settings import BY_NAME
from mirror_lib.groups import translation
from tests.lab.checkout import ROOT
from tests.unit.configs import FLOW, read, refusal
from tools.docs import cli, json_documents, parity, settings, starts, tables
from tools.docs.parity import key_row, mirrormakers_keys
from tools.kafka_names import LIST, MODULE, module_of

# By the file, its text; the page of tables keeps what it does not generate.
WRITTEN: Dict[str, Callable[[str], str]] = {
    "docs/reference/cli.md": lambda _: cli.page(),
    "docs/reference/json.md": lambda _: json_documents.page(),
    "docs/reference/mirrormaker-keys.md": lambda _: parity.page(),
    "docs/reference/settings.md": lambda _: settings.page(),
    "docs/reference/tables.md": tables.page,
    "docs/project/starts.md": lambda _: starts.page(),
    str(MODULE.relative_to(ROOT)): lambda _: module_of(LIST.read_text("utf-8")),
}
ROWS = mirrormakers_keys()


@pytest.mark.parametrize("name", WRITTEN)
def test_generated_file_is_up_to_date(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == WRITTEN[name](text), "make the file again, see tools/docs and tools/kafka_names.py"


def test_every_verdict_of_groups_is_on_their_page() -> None:
    text = (ROOT / "docs" / "run" / "consumer-groups.md").read_text(encoding="utf-8")
    named = {value for name, value in vars(translation).items() if name.isupper() and isinstance(value, str)}
    reasons = {"NO_ANSWER", "NOT_COPIED", "OLDER", "UNRECORDED", "_BY_HAND"}
    others = {"COMMIT", "TO_DOWNSTREAM", "TO_UPSTREAM", "BEFORE", "BEYOND", "END", *reasons}
    verdicts = sorted(named - {getattr(translation, name) for name in others})
    assert [each for each in verdicts if f"| `{each}` |" not in text] == []


# Read by the reader of connectors, or what every file needs.
ELSEWHERE = ("clusters", "name", "connector.class", "source.cluster.alias", "target.cluster.alias", "config.providers*")
EXAMPLES = {"ssl.*": "ssl.protocol", "sasl.*": "sasl.mechanism"}
VALUES = {"bootstrap.servers": "a:9092", "security.protocol": "PLAINTEXT", "enabled": "true"}


@pytest.mark.parametrize("key", [row for row in ROWS if row not in ELSEWHERE])
def test_what_the_page_says_of_a_key_is_what_the_loader_does(key: str, tmp_path: Path) -> None:
    name = EXAMPLES.get(key, key.replace(".*", ".x").rstrip("*"))
    value = VALUES.get(key) or (BY_NAME[name].default if name in BY_NAME else "") or "x"
    text = f"{FLOW}{name} = {value}\n"
    if key_row(key)[1] == "refused":
        assert f"{name} cannot be honoured" in refusal(tmp_path, text)
    else:
        ignored = f"{name}: ignored: " in "\n".join(read(tmp_path, text).warnings)
        assert ignored == (key_row(key)[1] == "ignored")

"""The table of settings is the one source: the model's defaults and docs/reference/settings.md agree with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Dict, Set

from mirror_lib.config.keys import unused
from mirror_lib.config.model import ClusterConfig, MirrorConfig, ReplicationFlow
from mirror_lib.config.settings import BY_NAME, FLOW, MISSPELLINGS, OLD_NAMES, SETTINGS, TOP
from tools.docs.settings import page

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
# Set by two keys together, not by a row of their own.
DERIVED = {"internal_separator", "change", "checkpoints_in_run", "delivery_may_fall", "custom_properties", "places",
           "remote_alias"}
OF_FLOWS = {"flows", "heartbeat_pairs"}


def defaults(level: str) -> Dict[str, Any]:
    values = {row.field: row.kind.parse(row.default) for row in SETTINGS if row.level == level and row.field}
    switches = [row for row in SETTINGS if row.level == level and row.switches]
    off = [BY_NAME[row.switches].field for row in switches if not row.kind.parse(row.default)]
    return {**values, **dict.fromkeys(off)}


def test_a_flow_made_in_code_has_the_defaults_of_the_table() -> None:
    side = ClusterConfig("A", {})
    flow = ReplicationFlow(side, side)
    for field, value in defaults(FLOW).items():
        assert getattr(flow, field) == value, field


def test_every_field_has_its_row() -> None:
    flow_fields: Set[str] = {field.name for field in dataclasses.fields(ReplicationFlow)} - {"source", "target"}
    assert set(defaults(FLOW)) == flow_fields - DERIVED
    top_fields: Set[str] = {field.name for field in dataclasses.fields(MirrorConfig)}
    assert set(defaults(TOP)) == top_fields - {*OF_FLOWS, "warnings", "idle", "corrected", "places"}


def test_other_spellings_lead_to_settings_and_are_none_themselves() -> None:
    for wrong, right in {**OLD_NAMES, **MISSPELLINGS}.items():
        assert right in BY_NAME
        assert wrong not in BY_NAME
        assert unused(wrong) is None


def test_no_setting_is_also_unused() -> None:
    assert [name for name in BY_NAME if unused(name)] == []


def test_the_reference_page_is_up_to_date() -> None:
    assert DOCS.read_text(encoding="utf-8") == page(), "run: python -m tools.docs.settings > docs/reference/settings.md"

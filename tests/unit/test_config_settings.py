"""The table of settings is the one source: the model's defaults and docs/reference/settings.md agree with it."""

from __future__ import annotations

from pathlib import Path

from mirror_lib.config.settings import BY_NAME, OTHER_NAMES, SETTINGS, unused
from mirror_lib.config.values import FLOW
from tests.unit.configs import FLOW as ONE_FLOW
from tests.unit.configs import IN_YAML, YAML, read, refusal


def test_a_key_has_one_row_and_a_switch_one_interval() -> None:
    assert len(BY_NAME) == len(SETTINGS)
    for switch in (row for row in SETTINGS if row.switches):
        assert BY_NAME[switch.switches].field and BY_NAME[switch.switches].level == switch.level == FLOW


def test_other_spellings_lead_to_settings_and_are_none_themselves() -> None:
    for wrong, right in OTHER_NAMES.items():
        assert right in BY_NAME
        assert wrong not in BY_NAME
        assert unused(wrong) is None


def test_no_setting_is_also_unused() -> None:
    assert [name for name in BY_NAME if unused(name)] == []


def test_history_is_kept_for_thirty_days_or_for_so_many(tmp_path: Path) -> None:
    assert read(tmp_path, ONE_FLOW).history_days == 30
    assert read(tmp_path, f"{ONE_FLOW}history.days = 400\n").history_days == 400
    assert read(tmp_path, f"{IN_YAML}history.days: 7\n", YAML).history_days == 7
    said = refusal(tmp_path, f"{IN_YAML}history.days: 0\n", YAML)
    assert said == "history.days must be a whole number from 1 on, not '0' (mirror.yaml:6)"

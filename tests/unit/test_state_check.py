"""When `mirror state check` reports the ledger as lost."""

from __future__ import annotations

from dataclasses import replace

from mirror_lib.commands.state_check import ledger_is_lost
from mirror_lib.ledger.state_check import FINE, MISSING, STATE_TABLES, TableState


def test_ledger_is_lost_where_it_is_missing_and_flows_ran() -> None:
    none = [TableState(name, MISSING) for name in STATE_TABLES]
    ran = [replace(each, status=FINE, rows=2) if each.name == "runs" else each for each in none]
    assert ledger_is_lost(ran)
    assert not ledger_is_lost(none)
    assert not ledger_is_lost([replace(each, status=FINE, rows=1) for each in ran])

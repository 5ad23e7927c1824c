"""Every refusal and every incident has a code, and every code an entry: in the table, in `mirror help`, on the page."""

from __future__ import annotations

import ast
import pickle
import re
from types import SimpleNamespace
from typing import Any, Iterator, List, Set

import pytest

from mirror_lib.cli import main
from mirror_lib.codes import INCIDENT_CODES, PREFIX, REMOVED, entries, entry
from mirror_lib.copy_job import incomplete_copy
from mirror_lib.errors import FencedError, MirrorError, RefusedError
from mirror_lib.kafka.log_reader import LostTail
from mirror_lib.ledger.records import INCIDENT_KINDS
from mirror_lib.replication.messages import Stop
from tests.lab.checkout import ROOT

CODES = [each.code for each in entries()]
FILES = [path for path in sorted((ROOT / "mirror_lib").rglob("*.py")) if path.name != "codes.py"]


def named_codes(source: str) -> Set[str]:
    """Codes in string literals."""
    words = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return {word for word in words if isinstance(word, str) and re.fullmatch(rf"{PREFIX}\d+", word)}


def refusals_without_code(source: str) -> Iterator[int]:
    """Lines that make a plain `RefusedError` without `code=`. A subclass has the code of its class."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        made = isinstance(call.func, ast.Name) and call.func.id == "RefusedError"
        if made and not any(keyword.arg == "code" for keyword in call.keywords):
            yield call.lineno


def test_every_refusal_names_a_code() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    assert [f"{path}:{line}" for path, text in texts.items() for line in refusals_without_code(text)] == []


def test_codes_of_the_source_and_of_the_table_are_the_same() -> None:
    named: Set[str] = set().union(*(named_codes(path.read_text(encoding="utf-8")) for path in FILES))
    assert sorted(named | set(INCIDENT_CODES.values())) == CODES
    assert not set(REMOVED) & set(CODES)


def test_every_kind_of_incident_has_an_entry() -> None:
    assert tuple(INCIDENT_CODES) == INCIDENT_KINDS
    for kind, code in INCIDENT_CODES.items():
        found = entry(code)
        assert found is not None and found.title == f"Incident: {kind}"


def test_help_prints_an_entry_or_that_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    found = entry("MIR-304")
    assert found is not None
    for word in ("MIR-304", "mir-304", "304"):
        assert main(["help", word]) == 0
        reported = capsys.readouterr().out
        assert reported.startswith(f"MIR-304  {found.title}\n")
        assert all(part in reported for part in (found.cause, found.data, found.remedy))
    assert main(["help", "MIR-3044"]) == 2
    assert "there is no code MIR-3044 (mirror help lists all of them)" in capsys.readouterr().err


def test_error_keeps_its_code_on_the_way_between_processes() -> None:
    found: List[MirrorError] = pickle.loads(pickle.dumps([RefusedError("no", code="MIR-304"), FencedError("gone")]))
    assert [each.code for each in found] == ["MIR-304", "MIR-302"]
    assert LostTail("gone").code == "MIR-312"


def test_run_ends_with_the_code_of_the_first_partition_that_was_refused() -> None:
    failed, refused = Stop("a-0: too large"), Stop("a-1: gone", "MIR-310", refused=True)
    for stopped, code in (([failed, refused], "MIR-310"), ([failed], "MIR-205")):
        flow = SimpleNamespace(name="A->B")
        mirror: Any = SimpleNamespace(flow=flow, stopped=lambda: stopped, blocked=lambda: [])  # noqa: B023
        error = incomplete_copy(mirror)
        assert error is not None and error.code == code and isinstance(error, RefusedError) == (code == "MIR-310")

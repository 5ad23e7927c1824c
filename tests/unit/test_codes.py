"""Every refusal and every incident has a code, and every code an entry: in the table, in `mirror help`, on the page."""

from __future__ import annotations

import ast
import pickle
import re
from types import SimpleNamespace
from typing import Any, Iterator, List, Set, Type

import pytest

from mirror_lib import errors
from mirror_lib.cli import main
from mirror_lib.codes import INCIDENT_CODES, PREFIX, entries, entry, grouped_entries
from mirror_lib.commands.output import print_error
from mirror_lib.copy_job import incomplete_copy
from mirror_lib.errors import ClusterError, FencedError, MirrorError, RefusedError
from mirror_lib.kafka.log_reader import LostTail
from mirror_lib.ledger.records import INCIDENT_KINDS
from mirror_lib.replication.messages import Stop
from tests.lab.checkout import ROOT

ENTRIES = entries()
CODES = [each.code for each in ENTRIES]
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


def subclasses(kind: Type[MirrorError]) -> Iterator[Type[MirrorError]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_refusal_names_a_code() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    assert [f"{path}:{line}" for path, text in texts.items() for line in refusals_without_code(text)] == []


def test_codes_of_the_source_and_of_the_table_are_the_same() -> None:
    named: Set[str] = set().union(*(named_codes(path.read_text(encoding="utf-8")) for path in FILES))
    assert named | set(INCIDENT_CODES.values()) == set(CODES)


def test_every_class_of_errors_has_a_code_of_the_table() -> None:
    kinds = [each for each in subclasses(MirrorError) if each.__module__.startswith("mirror_lib")]
    assert kinds and not [kind for kind in kinds if kind.code not in CODES]
    refusals = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RefusedError)]
    assert len({kind.code for kind in refusals}) == len(refusals)
    assert all(kind.code.startswith(f"{PREFIX}3") for kind in refusals)


def test_codes_are_unique_ordered_and_of_a_group_and_the_page_has_each() -> None:
    assert sorted(set(CODES)) == CODES
    for number, own in enumerate(grouped_entries().values(), 1):
        assert own and all(re.fullmatch(rf"{PREFIX}{number}\d\d", each.code) for each in own)
    page = (ROOT / "docs" / "fix" / "codes.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (.+)$", page, re.MULTILINE) == CODES


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


def test_error_line_begins_with_the_code_and_that_of_a_refusal_names_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for error in (ClusterError("A: no answer", "is it up?"), RefusedError("A->B: no", code="MIR-304")):
        print_error(error)
    assert capsys.readouterr().err.splitlines() == [
        "error: MIR-201: A: no answer (is it up?)",
        "error: MIR-304: A->B: no; mirror help MIR-304 explains it",
    ]


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

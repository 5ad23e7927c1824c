"""What the audit makes of licences, and of a service that knows none of the packages."""

from __future__ import annotations

import json
from typing import Any, Dict, List

import pytest

from tools.supply import AUDITED, LOCKS, answered, canonical, locked, unlicensed


def component(*licenses: Dict[str, Any]) -> Dict[str, Any]:
    return {"name": "each", "version": "1", "licenses": list(licenses)}


def report(*packages: Dict[str, Any]) -> str:
    return json.dumps({"dependencies": list(packages), "fixes": []})


@pytest.mark.parametrize(
    "licenses",
    [
        [{"license": {"id": "Apache-2.0"}}],
        [{"license": {"name": "License :: OSI Approved :: Apache Software License"}}],
        [{"license": {"name": "The Apache Software License, Version 2.0"}}],
        [{"expression": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0"}],
    ],
)
def test_licence_on_the_list_is_allowed(licenses: List[Dict[str, Any]]) -> None:
    assert unlicensed([component(*licenses)]) == []


@pytest.mark.parametrize(
    "licenses", [[], [{"license": {"id": "GPL-3.0-only"}}], [{"expression": "MIT AND LGPL-2.1-only"}]]
)
def test_other_licence_and_none_at_all_are_reported(licenses: List[Dict[str, Any]]) -> None:
    assert len(unlicensed([component(*licenses)])) == 1


def test_vulnerability_is_reported_with_its_package() -> None:
    clean = {"name": "a", "version": "1", "vulns": []}
    assert answered(report(clean)) == []
    found = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1"}]}
    assert answered(report(clean, found)) == ["b 2: CVE-1"]


def test_package_that_the_service_does_not_have_is_no_clean_package() -> None:
    clean = {"name": "a", "version": "1", "vulns": []}
    assert answered(report(clean, {"name": "b", "skip_reason": "not found"})) is None
    assert answered("") is None and answered(report()) is None


def test_audited_locks_exist_and_have_canonical_names() -> None:
    assert all((LOCKS / name).is_file() for name in AUDITED)
    assert all(canonical(name) == name for each in AUDITED for name in locked(each))

"""Single faults in the pure modules are noticed by the tests of those modules: a seeded sample, and controls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest

from tests.lab.checkout import ROOT
from tests.mutation.mutants import KILLED, SURVIVED, chosen, mutants_of, outcome


def _tests(*names: str) -> Tuple[str, ...]:
    return tuple(f"tests/unit/test_{name}.py" for name in names)


# By module, the test files that have to notice its faults. A module that is renamed is renamed here too.
MODULES: Dict[str, Tuple[str, ...]] = {
    "mirror_lib/replication/reconcile.py": _tests("reconcile", "recovery", "loss"),
    "mirror_lib/replication/copy_ranges.py": _tests("ranges", "metrics", "start_rules"),
    "mirror_lib/kafka/record_batch.py": _tests("batch"),
    "mirror_lib/kafka/reencoder.py": _tests("reencode", "encode", "legacy"),
    "mirror_lib/ledger/intervals.py": _tests("partition_map", "sync_runs"),
    "mirror_lib/topics/plan.py": _tests("plan", "custom_classes"),
}
SEED = int(os.environ.get("MUTATION_SEED", "7"))
EACH = int(os.environ.get("MUTATION_EACH", "8"))
SHARE = 0.8


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.long
def test_a_fault_that_is_known_is_noticed_and_text_that_means_the_same_is_not(tmp_path: Path) -> None:
    path = "mirror_lib/replication/copy_ranges.py"
    source, tests = text_of(path), MODULES[path]
    known = source.replace("begin.upstream_offset < 0", "begin.upstream_offset <= 0")
    assert known != source
    assert outcome(path, known, tests, tmp_path) == KILLED
    assert outcome(path, source + "\nSAME = 1\n", tests, tmp_path) == SURVIVED
    # The fault is there, and the tests of another module do not meet it.
    assert outcome(path, known, MODULES["mirror_lib/kafka/record_batch.py"], tmp_path) == SURVIVED
    assert outcome(path, "while True:\n    pass\n", tests, tmp_path) == KILLED


@pytest.mark.long
def test_most_single_faults_in_pure_modules_are_noticed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    survivors: List[str] = []
    count = 0
    for path, tests in MODULES.items():
        source = text_of(path)
        # What follows says nothing where the tests fail without a fault.
        assert outcome(path, source, tests, tmp_path) == SURVIVED, f"{', '.join(tests)} fail without a fault"
        for mutant in chosen(mutants_of(source, path), EACH, SEED):
            count += 1
            if outcome(path, mutant.text, tests, tmp_path) == SURVIVED:
                survivors.append(str(mutant))
    share = 1 - len(survivors) / count
    said = f"seed {SEED}: {count - len(survivors)} of {count} mutants were killed, {share:.0%}"
    # The summary of the run shows it, also where the tests pass.
    record_property("mutants", said)
    for survivor in survivors:
        record_property("survived", survivor)
    assert share >= SHARE, "\n".join([said, *survivors])

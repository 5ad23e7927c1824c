"""Single faults in the pure modules are noticed by the tests of those modules: a seeded sample, and controls.

A mutant is never written into the checkout: its tests run in a process of their own, in a folder of links to the
checkout in which that one module is another file.
"""

from __future__ import annotations

import ast
import copy
import os
import random
import resource
import subprocess
import sys
import uuid
import warnings
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple, Type

import pytest

from tests.lab.checkout import ROOT


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
SEED, EACH, SHARE = 7, 8, 0.8

# What takes each other's place: a boundary that moves, and the opposite.
COMPARISONS: Tuple[Tuple[Type[ast.cmpop], Type[ast.cmpop]], ...] = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE)),
    *((ast.Lt, ast.GtE), (ast.LtE, ast.Gt), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
)
ARITHMETIC: Dict[Type[ast.operator], Type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
EXTREMES = {"min": "max", "max": "min"}
# An endless loop is ended after so many seconds of CPU, which counts as noticed. A busy machine does not shorten it.
CPU_SECONDS = 40
WALL_SECONDS = 900
MEMORY = 4 << 30

KILLED, SURVIVED = "killed", "survived"
# pytest's exit codes: all passed; tests failed; interrupted, as by a module that cannot be imported.
_OUTCOMES = {0: SURVIVED, 1: KILLED, 2: KILLED}


class Mutant(NamedTuple):
    """One change, of this kind, at a line that is named: the module's whole `text` with it."""

    kind: str
    name: str
    text: str


def _changes(node: ast.AST) -> Iterator[Tuple[str, ast.AST]]:
    """What may take the node's place, with the kind of the change."""
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            for pair in (pair for pair in COMPARISONS if type(operator) in pair):
                other = pair[pair[0] is type(operator)]
                operators = [*node.ops[:i], other(), *node.ops[i + 1 :]]
                yield "comparison", ast.Compare(node.left, operators, node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield "other boolean operator", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        for i in range(len(node.values)):
            yield "dropped operand", ast.BoolOp(node.op, node.values[:i] + node.values[i + 1 :])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "removed not", node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield "arithmetic", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        for value in (node.value + 1, node.value - 1):
            yield "constant", ast.Constant(value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXTREMES:
        yield "min and max", ast.Call(ast.Name(EXTREMES[node.func.id], ast.Load()), node.args, node.keywords)
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        changed = copy.copy(node)
        changed.test = ast.UnaryOp(ast.Not(), node.test)
        yield "negated condition", changed
    elif isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)) or (
        isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)  # a docstring
    ):
        yield "removed statement", ast.Pass()


def _left_alone(node: ast.AST, field: str, below: ast.AST) -> bool:
    """Texts of messages, annotations, decorators, and imports for types."""
    if isinstance(below, (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.arguments)) or isinstance(node, ast.Raise):
        return True
    if field in ("annotation", "returns", "decorator_list"):
        return True
    return isinstance(below, ast.If) and isinstance(below.test, ast.Name) and below.test.id == "TYPE_CHECKING"


def mutants_of(source: str, path: str) -> List[Mutant]:
    """Every mutant of a module's text."""
    tree = ast.parse(source)
    found: List[Mutant] = []

    def visit(node: ast.AST) -> None:
        for field, value in ast.iter_fields(node):
            for at, below in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(below, ast.AST) or _left_alone(node, field, below):
                    continue
                for kind, new in _changes(below):
                    setattr(node, field, [*value[:at], new, *value[at + 1 :]] if isinstance(value, list) else new)
                    old, other = (ast.unparse(each).partition("\n")[0] for each in (below, new))
                    name = f"{path}:{getattr(below, 'lineno', 0)}: {kind}: `{old}` -> `{other}`"
                    found.append(Mutant(kind, name, ast.unparse(ast.fix_missing_locations(tree))))
                    setattr(node, field, value)
                visit(below)

    visit(tree)
    return found


def chosen(mutants: Sequence[Mutant], count: int, seed: int) -> List[Mutant]:
    """`count` of the mutants, or all: of each kind in turn, so that a frequent kind does not crowd out the others."""
    dice = random.Random(seed)
    by_kind: Dict[str, List[Mutant]] = {}
    for mutant in mutants:
        by_kind.setdefault(mutant.kind, []).append(mutant)
    for some in by_kind.values():
        dice.shuffle(some)
    picked: List[Mutant] = []
    while len(picked) < min(count, len(mutants)):
        picked += [some.pop() for some in by_kind.values() if some]
    return picked[:count]


def linked(path: str, text: str, folder: Path) -> Path:
    """A folder of links to the checkout, in which the module at `path` has that text."""
    made = there = folder / uuid.uuid4().hex
    here = ROOT
    for part in Path(path).parts:
        there.mkdir()
        for each in here.iterdir():
            if each.name != part and not each.name.startswith("."):
                (there / each.name).symlink_to(each)
        here, there = here / part, there / part
    there.write_text(text, encoding="utf-8")
    return made


def _limit() -> None:
    """What an endless loop may use."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def outcome(path: str, text: str, tests: Sequence[str], folder: Path) -> str:
    """`killed` or `survived`: what the test files report of the module at `path` with that text.

    AssertionError where pytest found no tests or could not start, which says nothing about the module.
    """
    own = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    own.pop("LONG_SHARD", None)  # which tests notice a fault does not depend on the part that runs now
    own.pop("PYTHONPATH", None)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-W", "ignore", "--hypothesis-seed=0", *tests],
            cwd=linked(path, text, folder),
            env=own,
            preexec_fn=_limit,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return KILLED
    assert ran.returncode in _OUTCOMES or ran.returncode < 0, ran.stdout[-2000:]
    return _OUTCOMES.get(ran.returncode, KILLED)  # a signal is the limit on CPU


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
def test_most_single_faults_in_pure_modules_are_noticed(tmp_path: Path) -> None:
    survivors: List[str] = []
    count = 0
    for path, tests in MODULES.items():
        source = text_of(path)
        # What follows says nothing where the tests fail without a fault.
        assert outcome(path, source, tests, tmp_path) == SURVIVED, f"{', '.join(tests)} fail without a fault"
        for mutant in chosen(mutants_of(source, path), EACH, SEED):
            count += 1
            if outcome(path, mutant.text, tests, tmp_path) == SURVIVED:
                survivors.append(mutant.name)
    share = 1 - len(survivors) / count
    said = f"seed {SEED}: {count - len(survivors)} of {count} mutants were killed, {share:.0%}"
    # The summary of the run shows it, also where the tests pass.
    warnings.warn("\n".join([said, *survivors]), stacklevel=1)
    assert share >= SHARE

"""Single changes of a module's source that its tests should notice, and a run of these tests against one change.

A mutant is never written into the checkout: its tests run in a process of their own that imports the module from a
file elsewhere (`tests.mutation.mutated_import`).
"""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Type

from tests.lab.checkout import ROOT

# By operator, what takes its place: a boundary that moves, and the opposite.
COMPARISONS: Dict[Type[ast.cmpop], Tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
SPELLED: Dict[Type[ast.AST], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
ARITHMETIC: Dict[Type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+"}
EXTREMES = {"min": "max", "max": "min"}
# An endless loop is ended after so many seconds of CPU, which counts as noticed. A busy machine does not shorten it.
CPU_SECONDS = 40
WALL_SECONDS = 900

KILLED, SURVIVED = "killed", "survived"
# pytest's exit codes: all passed; tests failed; interrupted, as by a module that cannot be imported.
_OUTCOMES = {0: SURVIVED, 1: KILLED, 2: KILLED}


@dataclass(frozen=True)
class Mutant:
    """One change: the text from byte `start` to byte `end` of the module becomes `new`. `kind` names the change."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.path}:{self.line}: {self.kind}: `{old}` -> `{new}`"

    def applied(self, source: str) -> str:
        """The module's text with the change."""
        data = source.encode("utf-8")
        return (data[: self.start] + self.new.encode("utf-8") + data[self.end :]).decode("utf-8")


class _Finder:
    """Finds the mutants of one source text."""

    def __init__(self, source: str, path: str) -> None:
        self._path = path
        self._data = source.encode("utf-8")
        self._lines = [0]
        for line in self._data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def _span(self, node: ast.AST) -> Tuple[int, int]:
        at = {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}
        start = self._lines[at["lineno"] - 1] + at["col_offset"]
        return start, self._lines[at["end_lineno"] - 1] + at["end_col_offset"]

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._data[start:end].decode("utf-8")

    def _in_brackets(self, node: ast.AST) -> str:
        # A node's text ends before the brackets around it.
        return f"({self._text(node)})"

    def _changed(self, node: ast.AST, kind: str, new: str) -> Mutant:
        start, end = self._span(node)
        return Mutant(self._path, getattr(node, "lineno", 0), kind, start, end, self._text(node), new)

    def found(self, node: ast.AST) -> Iterator[Mutant]:
        """Mutants of the node and of all below it. Texts of messages and annotations are left as they are."""
        yield from self._of(node)
        for below in ast.iter_child_nodes(node):
            if not self._left_alone(node, below):
                yield from self.found(below)

    @staticmethod
    def _left_alone(node: ast.AST, below: ast.AST) -> bool:
        if isinstance(below, (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.arguments)):
            return True
        if isinstance(node, ast.Raise) or below is getattr(node, "annotation", None):
            return True
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return below is getattr(node, "returns", None) or below in node.decorator_list
        # Not run: imports for types.
        return isinstance(below, ast.If) and isinstance(below.test, ast.Name) and below.test.id == "TYPE_CHECKING"

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            yield from self._of_comparison(node)
        elif isinstance(node, ast.BoolOp):
            word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            texts = [self._in_brackets(value) for value in node.values]
            yield self._changed(node, "other boolean operator", f"({f' {other} '.join(texts)})")
            for i in range(len(texts)):
                kept = f" {word} ".join(texts[:i] + texts[i + 1 :])
                yield self._changed(node, "dropped operand", f"({kept})")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield self._changed(node, "removed not", self._in_brackets(node.operand))
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            sides = self._in_brackets(node.left), self._in_brackets(node.right)
            yield self._changed(node, "arithmetic", f"({f' {ARITHMETIC[type(node.op)]} '.join(sides)})")
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            for new in (node.value + 1, node.value - 1):
                yield self._changed(node, "constant", f"({new})")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXTREMES:
            yield self._changed(node.func, "min and max", EXTREMES[node.func.id])
        elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield self._changed(node.test, "negated condition", f"(not {self._in_brackets(node.test)})")
        elif self._can_go(node):
            yield self._changed(node, "removed statement", "pass")

    def _of_comparison(self, node: ast.Compare) -> Iterator[Mutant]:
        texts = [self._in_brackets(each) for each in (node.left, *node.comparators)]
        words = [SPELLED[type(operator)] for operator in node.ops]
        for i, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                parts = [texts[0]]
                for at, (word, text) in enumerate(zip(words, texts[1:])):
                    parts += [other if at == i else word, text]
                yield self._changed(node, "comparison", f"({' '.join(parts)})")

    @staticmethod
    def _can_go(node: ast.AST) -> bool:
        if isinstance(node, ast.Expr):
            return not isinstance(node.value, ast.Constant)  # a docstring
        return isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete))


def mutants_of(source: str, path: str) -> List[Mutant]:
    """Every mutant of a module's text whose text still parses."""
    found = _Finder(source, path).found(ast.parse(source))
    return [mutant for mutant in found if _parses(mutant.applied(source))]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


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


def outcome(path: str, text: Optional[str], tests: Sequence[str], folder: Path) -> str:
    """`killed` or `survived`: what the test files report of the module at `path`, with that text or as it is.

    RuntimeError where pytest found no tests or could not start, which says nothing about the module.
    """
    own = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    own.pop("LONG_SHARD", None)  # which tests notice a fault does not depend on the part that runs now
    if text is not None:
        file = folder / "mutant.py"
        file.write_text(text, encoding="utf-8")
        module = path[: -len(".py")].replace("/", ".")
        own.update(MUTANT_MODULE=module, MUTANT_FILE=str(file), MUTANT_CPU_SECONDS=str(CPU_SECONDS))
    options = ["-q", "-x", "-W", "ignore", "--hypothesis-seed=0", "-p", "tests.mutation.mutated_import"]
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=ROOT,
            env=own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return KILLED
    if ran.returncode < 0:  # by the limit on CPU
        return KILLED
    if ran.returncode not in _OUTCOMES:
        raise RuntimeError(f"pytest ended with {ran.returncode} for {', '.join(tests)}: {ran.stdout[-2000:]}")
    return _OUTCOMES[ran.returncode]

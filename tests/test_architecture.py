"""The house rules as tests: who may import whom, and doors to other systems."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

# One door for each outside system: the modules, or whole packages, that may import it.
ONLY_IN: Dict[str, Tuple[str, ...]] = {
    "kafka": ("kafka",),
    "delta": ("ledger",),
    "yaml": ("config",),
    "javaproperties": ("config",),
    "prometheus_client": ("exporter",),
    "rich": ("screen",),
    "jinja2": ("report",),
    "matplotlib": ("report",),
    "deltalake": ("ledger",),
}
# Decisions and record batches are tested without a JVM, so they cannot see Spark.
WITHOUT_SPARK = (
    *("errors", "facts", "text", "metrics", "progress", "screen", "exporter", "config", "kafka", "topics", "plan"),
    *("control", "status", "doctor.checks", "cutover.steps", "cutover.gates"),
    *("ledger.records", "ledger.events", "ledger.reductions"),
    *("groups.map", "groups.translation", "groups.mm2_format", "groups.position_formats"),
    *("takeover.origin", "takeover.walk", "takeover.verdicts"),
    *("replication.lane", "replication.copier", "replication.partition", "replication.copy_ranges"),
    "replication.reconcile",
    *("rows.origin", "rows.columns", "rows.partition", "rows.writer"),
    *("status", "report", "ledger.table_reader"),
)
# What reads and writes the Kafka log for the copying code.
COPYING = ("wire", "connection", "fetcher", "log_reader", "log_pairs", "producer", "fencing")
BATCHES = ("record_batch", "reencoder", "codecs")
# What makes Spark's expressions of a user's change, and reads nothing.
CHANGING = ("catalyst", "transform")
# The verifier proves what the copying code did, so it reads records by a path of its own. Where whole batches are the
# same byte for byte, nothing has to be read out of them. What a change comes to is asked of the same expressions on
# both sides.
BY_RECORD = tuple(f"verify.{module}" for module in ("comparison", "digests", "flow", "origins", "ranges", "verdicts"))
NEVER = (
    *((module, f"kafka.{part}") for module in BY_RECORD for part in (*COPYING, *BATCHES)),
    *(("verify.batches", f"kafka.{part}") for part in ("fencing", "producer", "reencoder", "codecs")),
    ("verify", "replication"),
    ("verify", "rows.writer"),
    ("verify", "rows.partition"),
    ("verify", "rows.columns"),
    ("verify", "rows.mirror"),
    ("config", "kafka"),
    ("kafka", "replication"),
    ("ledger", "replication"),
    *((f"rows.{one}", part) for one in CHANGING for part in ("kafka", "replication", "ledger", "rows.writer")),
    ("rows.partition", "rows.stage"),
    *((f"report.{part}", "status.read") for part in ("page", "charts", "settings")),
    ("rows.writer", "rows.mirror"),
)
# Spark's private doors to its JVM, which Spark Connect, serverless compute and standard access mode do not have.
SPARKS_PRIVATE = ("_jsc", "_jvm", "_jsparkSession", "_jdf", "_jsq", "_jc", "_gateway", "_active_spark_context")
# By module: the private doors that it uses, and why no public one would do. docs/deploy/spark.md says where that
# can run.
PRIVATE_DOORS: Dict[str, Set[str]] = {
    # Plans are checked for determinism, and SQL has no function for murmur2 or for a partition's number.
    "rows.catalyst": {"_jvm", "_jsparkSession", "_jdf", "_jc"},
    # No public call counts the task slots of the executors that are there.
    "replication.stage": {"_jsc"},
    # The check that refuses a session without a JVM; newSession() forgets settings that were made at run time; Spark
    # has no setting by which its JVM ignores SIGTERM.
    "spark.session": {"_jvm", "_jsparkSession"},
    # PySpark has no public call that counts input rows of a streaming query.
    "replication.query": {"_jsq"},
    # PySpark has no public call for a context that ended in Java.
    "spark.errors": {"_jsc", "_active_spark_context"},
    # Hadoop's FileSystem: Spark has no public call that lists or deletes a folder.
    "ledger.state_files": {"_jvm", "_jsc"},
}
# What a task runs, and what it has no business with: topics, plans, settings and the driver's tables.
EXECUTORS = (
    *("mirror_lib.replication.copier", "mirror_lib.replication.stage", "mirror_lib.ledger.run_rows"),
    *("mirror_lib.rows.writer", "mirror_lib.rows.stage", "mirror_lib.preflight.probe", "mirror_lib.verify.batches"),
)
NOT_ON_EXECUTORS = (
    *("commands", "cli", "topics", "control", "plan", "groups", "takeover", "copy_job"),
    *("verify.comparison", "verify.digests", "verify.flow", "verify.origins", "verify.verdicts"),
    *("kafka.admin", "kafka.groups", "kafka.group_progress", "kafka.offsets", "kafka.compacted_topic"),
    *("config.loader", "config.build", "config.settings", "ledger.delta_table", "replication.flow"),
    *("rows.mirror", "rows.kept", "rows.repartitioned", "rows.flow"),
)


def sources(*folders: str) -> List[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


PRODUCT = sources("mirror_lib", "jobs")


@lru_cache(maxsize=None)
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module_of(path: Path) -> str:
    """`mirror_lib/kafka/record_batch.py` is `kafka.record_batch`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] == "mirror_lib" else parts)


def within(module: str, packages: Tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def imports(tree: ast.Module) -> Iterator[str]:
    """Names of every imported module, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def breaches(module: str, tree: ast.Module) -> List[str]:
    """Every import in `tree` that the rules forbid to `module`."""
    found = []
    for name in imports(tree):
        top, _, rest = name.partition(".")
        if not within(module, ONLY_IN.get(top, (module,))):
            found.append(f"{module} imports {name}: only {' and '.join(ONLY_IN[top])} may")
        if top == "pyspark" and within(module, WITHOUT_SPARK):
            found.append(f"{module} imports {name}, but is tested without Spark")
        if top == "mirror_lib" and any(within(module, (a,)) and within(rest, (b,)) for a, b in NEVER):
            found.append(f"{module} imports {name}, which it must not know")
    return found


def private_doors(tree: ast.Module) -> Set[str]:
    """The private doors to Spark's JVM that the module uses, as attributes or by their names."""
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    named |= {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return named.intersection(SPARKS_PRIVATE)


def test_private_doors_to_sparks_jvm_are_the_listed_ones() -> None:
    """A door that is used and not listed needs a public way, or a reason here; one that is not used has to go."""
    used = {module_of(path): private_doors(tree_of(path)) for path in PRODUCT}
    assert {module: doors for module, doors in used.items() if doors} == PRIVATE_DOORS


def test_imports_keep_to_their_doors() -> None:
    assert [each for path in PRODUCT for each in breaches(module_of(path), tree_of(path))] == []


def test_imports_between_packages_have_no_circle() -> None:
    """Also late ones, and those for types alone: a reader follows them too."""
    edges: Dict[str, Set[str]] = {}
    for path in sources("mirror_lib"):
        part, _, _ = module_of(path).partition(".")
        into = {name.split(".")[1] for name in imports(tree_of(path)) if name.startswith("mirror_lib.")}
        edges.setdefault(part, set()).update(into - {part})
    while edges:  # A package that imports none of those that are left is in no circle.
        leaves = {part for part, into in edges.items() if not into & edges.keys()}
        assert leaves, f"these import each other in a circle, or one that does: {sorted(edges)}"
        edges = {part: into for part, into in edges.items() if part not in leaves}


@pytest.mark.parametrize("door", EXECUTORS)
def test_executors_import_no_planning(door: str) -> None:
    """A process of its own, as a task's worker is one: whatever it imports is on every executor."""
    names = "[name.partition('.')[2] for name in sys.modules if name.startswith('mirror_lib.')]"
    program = f"import sys, {door}; print('\\n'.join({names}))"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    loaded = ran.stdout.split()
    assert door.partition(".")[2] in loaded
    assert [name for name in loaded if within(name, NOT_ON_EXECUTORS)] == []

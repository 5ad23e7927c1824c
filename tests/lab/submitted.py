"""A job by `spark-submit.sh` in a process of its own, with the environment of a user's shell."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, Sequence

from tests.lab.brokers import end_with_parent
from tests.lab.checkout import ROOT, jars_folder
from tests.lab.jvm import quick_spark

SCRIPT = str(ROOT / "spark-submit.sh")
JOB = str(ROOT / "jobs" / "mirror.py")
# Of the test's own process, and no part of a user's shell.
INHERITED = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_SUBMIT_OPTS", "PYTHONPATH")


@dataclass(frozen=True)
class Ended:
    """`text` is all that it printed: Spark merges the driver's streams."""

    code: int
    text: str


def environment(**changes: str) -> Dict[str, str]:
    """A user's, with this Python and its Spark as `.venv`."""
    kept = {name: value for name, value in os.environ.items() if name not in INHERITED}
    own = {"MIRROR_VENV": sys.prefix, "MIRROR_JARS_DIR": str(jars_folder())}
    return {**kept, **own, **quick_spark(), "SPARK_LOCAL_IP": "127.0.0.1", **changes}


@contextmanager
def submitted(log: Path, *command: str, env: Dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The job while it runs; what it prints goes to `log`."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [SCRIPT, *command], env=env, cwd=log.parent, stdout=out, stderr=out, preexec_fn=end_with_parent
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(120)


def submit(directory: Path, *options: str, config: Path, extra: Sequence[str] = (), **changes: str) -> Ended:
    log = directory / "submitted.log"
    log.write_bytes(b"")
    with submitted(log, *options, JOB, str(config), *extra, env=environment(**changes)) as process:
        code = process.wait(600)
    return Ended(code, log.read_text(errors="replace"))

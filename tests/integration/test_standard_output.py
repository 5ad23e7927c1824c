"""What Java and Delta print stays out of the mirror's standard output, which is for results, and their noise out of
standard error. Spark leaves no folder behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """\
from mirror_lib.spark.session import open_session
session = open_session("output")
session._jvm.java.lang.System.out.println("Deleted 0 files and directories in a total of 1 directories.")
session._jvm.java.lang.System.out.println("printed by Java")
print("a document", flush=True)
session.stop()
"""


def test_java_prints_to_standard_error_and_no_noise(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "a document\n"
    assert done.stderr.splitlines() == ["printed by Java"]
    assert list(tmp_path.iterdir()) == []

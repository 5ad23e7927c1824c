"""What Java and Delta print stays out of the mirror's standard output, which is for results, and their noise out of
standard error. Spark leaves no folder behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """\
from mirror_lib.spark.session import running_session
for name in ("one", "another"):
    with running_session(name) as session:
        out = session._jvm.java.lang.System.out
        out.println("Deleted 0 files and directories in a total of 1 directories.")
        out.println(name)
    out.println("Exception in a thread of Spark's that noticed its end")
print("a document", flush=True)
"""


def test_java_prints_to_standard_error_without_noise_and_nothing_once_it_ends(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "a document\n"
    assert done.stderr.splitlines() == ["one", "another"]
    assert list(tmp_path.iterdir()) == []

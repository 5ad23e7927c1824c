"""What Java and Delta print stays out of the mirror's standard output, which is for results."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """\
from mirror_lib.spark.session import open_session
session = open_session("output")
session._jvm.java.lang.System.out.println("printed by Java")
print("a document", flush=True)
session.stop()
"""


def test_java_prints_to_standard_error() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "a document\n"
    assert "printed by Java" in done.stderr

"""Java classes of the lab for real brokers: the source next to this module in, a folder with the class out."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.lab.brokers import JARS, java_command
from tests.lab.checkout import ROOT, LabError


def compiled(name: str, folder: Path) -> Path:
    """Compile `tests/lab/NAME.java` against Kafka's jars into `folder`. Raises `LabError`."""
    javac = str(Path(java_command()).resolve().with_name("javac"))
    program = str(ROOT / "tests" / "lab" / f"{name}.java")
    folder.mkdir(parents=True)
    command = [javac, "-nowarn", "-d", str(folder), "-cp", f"{JARS}/*", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{program} does not compile: {done.stderr.strip()[:300]}")
    return folder

"""Java programs of the lab: compiled for real brokers, or run next to them."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Mapping, Optional, Sequence

from tests.lab.brokers import JARS, die_with_parent, java_command
from tests.lab.checkout import ROOT, LabError
from tests.lab.jvm import QUICK
from tests.lab.processes import kill_tree


def compiled(name: str, folder: Path, package: str = "lab") -> Path:
    """Compile `NAME.java` of `tests/lab` or another folder against Kafka's jars into `folder`. Raises `LabError`."""
    javac = str(Path(java_command()).resolve().with_name("javac"))
    program = str(ROOT / "tests" / package / f"{name}.java")
    folder.mkdir(parents=True, exist_ok=True)
    command = [javac, "-nowarn", "-d", str(folder), "-cp", f"{JARS}/*", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{program} does not compile: {done.stderr.strip()[:300]}")
    return folder


@contextmanager
def program(
    name: str,
    jars: Path,
    directory: Path,
    *arguments: str,
    options: Sequence[str] = (),
    environment: Optional[Mapping[str, str]] = None,
) -> Iterator[subprocess.Popen[str]]:
    """`tests/lab/NAME.java` once it has printed `ready`; gone with all that it started on the way out."""
    log, source = directory / "console.log", str(ROOT / "tests" / "lab" / f"{name}.java")
    command = [java_command(), *QUICK, *options, "-cp", f"{jars}/*", source, *arguments]
    pipe = subprocess.PIPE
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=errors, text=True, preexec_fn=die_with_parent
        )
    with process:
        try:
            assert process.stdout is not None
            if not any(line == "ready\n" for line in process.stdout):
                raise LabError(f"{name} did not start: {log.read_text()[-500:]}")
            yield process
        finally:
            kill_tree(process.pid)

"""Jars by Ivy, which PySpark brings: fetched on first use, kept in .cache/NAME, shared by every test process."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple, Sequence

import pyspark

from tests.lab.checkout import CACHE, LabError

FETCH_SECONDS = 600
NETWORK = re.compile(r"UnknownHost|Network is unreachable|Connection refused|timed out|unresolved dependenc", re.I)


class Module(NamedTuple):
    """A module of a Maven repository, with the modules that it needs unless `transitive` is false."""

    organisation: str
    name: str
    revision: str
    transitive: bool = True


def fetched(name: str, wanted: Sequence[Module], witness: str) -> Path:
    """The folder `.cache/NAME` with the jars of `wanted`; complete where it has the jar `witness`.

    Raises `LabError` where they cannot be fetched.
    """
    folder = CACHE / name
    if (folder / witness).exists():
        return folder
    CACHE.mkdir(exist_ok=True)
    # Several test processes may need the jars at the same time: the first one fetches them.
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / witness).exists():
            _fetch(folder, wanted, witness)
    return folder


def _fetch(folder: Path, wanted: Sequence[Module], witness: str) -> None:
    resolver = next(Path(pyspark.__file__).parent.glob("jars/ivy-2*.jar"), None)
    if resolver is None:
        raise LabError(f"{folder.name} cannot be fetched: this pyspark has no Ivy; run `make setup`")
    part, module, log = (CACHE / f"{folder.name}.{end}" for end in ("part", "xml", "log"))
    shutil.rmtree(part, ignore_errors=True)
    module.write_text(_module(wanted))
    settings = os.environ.get("IVY_SETTINGS")
    command = [
        *("java", "-jar", str(resolver), *(["-settings", settings] if settings else [])),
        *("-cache", str(CACHE / "ivy" / folder.name), "-ivy", str(module), "-confs", "default"),
        *("-retrieve", f"{part}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    with log.open("wb") as output:
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=FETCH_SECONDS
        ).returncode
    if code or not (part / witness).exists():
        unreachable = NETWORK.search(log.read_text(errors="replace"))
        reason = "packages could not be downloaded; check the network or proxy" if unreachable else f"exit code {code}"
        raise LabError(f"{folder.name} cannot be fetched: {reason} (log: {log})")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _module(wanted: Sequence[Module]) -> str:
    lines = "".join(
        f'    <dependency org="{each.organisation}" name="{each.name}" rev="{each.revision}" conf="default->default"'
        f"{'' if each.transitive else ' transitive=' + chr(34) + 'false' + chr(34)}/>\n"
        for each in wanted
    )
    return (
        '<ivy-module version="2.0">\n  <info organisation="mirror" module="lab"/>\n'
        f'  <configurations><conf name="default"/></configurations>\n  <dependencies>\n{lines}  </dependencies>\n'
        "</ivy-module>\n"
    )

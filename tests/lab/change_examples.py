"""The files of conf/examples/changes as one configuration: a flow each, so that all of them run in one job."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Dict, List, Sequence

import yaml

from tests.lab.examples import EXAMPLES

CHANGES = sorted((EXAMPLES / "changes").glob("*.yaml"))


def joined(files: Sequence[Path], servers: Sequence[str], folder: Path) -> Path:
    """A file in `folder` with the flow of each of `files`, whose source is named after the file; modules next to it."""
    config: Dict[str, Any] = {"clusters": {"backup": {"bootstrap.servers": servers[1]}}, "flows": {}}
    for file in files:
        read = yaml.safe_load(file.read_text(encoding="utf-8").replace("primary", file.stem))
        config["clusters"][file.stem] = {"bootstrap.servers": servers[0]}
        (flow,) = read["flows"].values()
        config["flows"][f"{file.stem}->backup"] = {**flow, "emit.heartbeats.enabled": "false"}
    for module in (EXAMPLES / "changes").glob("*.py"):
        shutil.copy(module, folder)
    path = folder / "mirror.yaml"
    path.write_text(yaml.safe_dump({**config, "state": str(folder / "state")}), encoding="utf-8")
    return path


def stems() -> List[str]:
    """What the examples are called."""
    return [file.stem for file in CHANGES]

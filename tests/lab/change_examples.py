"""The files of conf/examples/changes as one configuration: a flow each, so that all of them run in one job."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Dict, Sequence

import yaml

from tests.lab.checkout import ROOT
from tests.lab.examples import EXAMPLES

CHANGES = sorted((EXAMPLES / "changes").glob("*.yaml"))
PAGE = ROOT / "docs" / "run" / "transform.md"


def page_flows() -> Dict[str, Any]:
    """The flows of the page that say what becomes of NULL, by the alias of their source."""
    found: Dict[str, Any] = {}
    for block in re.findall(r"^   ```yaml\n(.*?)^   ```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        if "coalesce" in block:
            for name, flow in yaml.safe_load(block)["flows"].items():
                found[name.replace("A->B", f"page{len(found)}->B").partition("->")[0]] = flow
    return found


def joined(files: Sequence[Path], servers: Sequence[str], folder: Path) -> Path:
    """A file in `folder` with the flow of each of `files`, whose source is named after the file, and those of the page;
    modules next to it."""
    config: Dict[str, Any] = {"clusters": {"backup": {"bootstrap.servers": servers[1]}}, "flows": {}}
    for file in files:
        read = yaml.safe_load(file.read_text(encoding="utf-8").replace("primary", file.stem))
        config["clusters"][file.stem] = {"bootstrap.servers": servers[0]}
        (flow,) = read["flows"].values()
        config["flows"][f"{file.stem}->backup"] = {**flow, "emit.heartbeats.enabled": "false"}
    for alias, flow in page_flows().items():
        config["clusters"][alias] = {"bootstrap.servers": servers[0]}
        config["flows"][f"{alias}->backup"] = {**flow, "replication.factor": 1, "emit.heartbeats.enabled": "false"}
    for module in (EXAMPLES / "changes").glob("*.py"):
        shutil.copy(module, folder)
    path = folder / "mirror.yaml"
    path.write_text(yaml.safe_dump({**config, "state": str(folder / "state")}), encoding="utf-8")
    return path

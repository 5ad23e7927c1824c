"""The files under conf/examples with addresses filled in: what a reader of them does before the first run. Those of
conf/examples/changes become one configuration: a flow each, so that all of them run in one job."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Dict, List, Sequence

import yaml

from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import ROOT

EXAMPLES = ROOT / "conf" / "examples"
CONNECTORS = [EXAMPLES / "connect" / f"mm2-{part}-connector.json" for part in ("source", "checkpoint", "heartbeat")]


def filled_in(files: Sequence[Path], sites: Sequence[KafkaBroker]) -> List[str]:
    """Copies of `files` here, where state goes too, with the two clusters' addresses and one replica each."""
    copies, folder, servers = [], Path.cwd(), [broker.bootstrap for broker in sites]
    for file in files:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            text = with_connector(text, servers).replace("{", f'{{\n  "state": "{folder / "state"}",', 1)
        else:
            text = f"{with_properties(text, servers)}state = {folder / 'state'}\n"
        copies.append(folder / file.name)
        copies[-1].write_text(text, encoding="utf-8")
    return [str(copy) for copy in copies]


def with_properties(text: str, servers: Sequence[str]) -> str:
    addresses = iter(servers)
    text, count = re.subn(
        r"^(\S+\.bootstrap\.servers *= *).*$", lambda found: found.group(1) + next(addresses), text, flags=re.MULTILINE
    )
    assert count == 2
    return re.sub(r"^(replication\.factor *= *)\d$", r"\g<1>1", text, flags=re.MULTILINE | re.IGNORECASE)


def with_connector(text: str, servers: Sequence[str]) -> str:
    """The target keeps its list with semicolons."""
    source, target = servers
    for side, address in (("source", source), ("target", f"{target};{target}")):
        text, count = re.subn(rf'("{side}\.cluster\.bootstrap\.servers": )"[^"]*"', rf'\g<1>"{address}"', text)
        assert count == 1
    return re.sub(r'("replication\.factor": )"\d"', r'\g<1>"1"', text)


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

"""The files under conf/examples with addresses filled in: what a reader of them does before the first run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Sequence

from tests.lab.checkout import ROOT

EXAMPLES = ROOT / "conf" / "examples"
CONNECTORS = [EXAMPLES / "connect" / f"mm2-{part}-connector.json" for part in ("source", "checkpoint", "heartbeat")]


def filled_in(files: Sequence[Path], servers: Sequence[str], folder: Path) -> List[str]:
    """Copies of `files` in `folder`, where state goes too, with the two clusters' addresses and one replica each."""
    copies = []
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

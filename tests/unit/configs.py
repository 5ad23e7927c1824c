"""Configuration files of tests: written to a folder, and read or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.model import ClusterConfig, MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_USAGE, ConfigError

# A flow with no setting but its clusters.
AB = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
MM2, YAML = "mm2.properties", "mirror.yaml"
CLUSTERS = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\n"
FLOW = CLUSTERS + "A->B.enabled = true\n"
IN_YAML = """\
clusters:
  A: {bootstrap.servers: "a:9092"}
  B: {bootstrap.servers: "b:9092"}
flows:
  A->B:
"""


def read(folder: Path, text: str, name: str = MM2, environ: Optional[Mapping[str, str]] = None) -> MirrorConfig:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load(str(path), environ or {})


def refusal(folder: Path, text: str, name: str = MM2, environ: Optional[Mapping[str, str]] = None) -> str:
    """The error, in which files have no folder."""
    with pytest.raises(ConfigError) as caught:
        read(folder, text, name, environ)
    assert caught.value.exit_code == EXIT_USAGE
    return str(caught.value).replace(f"{folder}/", "")


def warnings(config: MirrorConfig) -> str:
    return "\n".join(config.warnings)


def fields(config: MirrorConfig, wanted: Mapping[str, Any]) -> Dict[str, Any]:
    """The same fields of the first flow, or of the whole configuration where a flow has none of that name."""
    (flow, *_) = config.flows
    return {name: getattr(flow if hasattr(flow, name) else config, name) for name in wanted}

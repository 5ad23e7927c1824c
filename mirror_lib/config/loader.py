"""The path of a configuration file in, one frozen `MirrorConfig` out: YAML, or a MirrorMaker 2 `.properties` file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Mapping

from mirror_lib.config.entries import Document
from mirror_lib.config.flows import build_config
from mirror_lib.config.keys import sort_keys
from mirror_lib.config.mm2 import read_mm2
from mirror_lib.config.model import MirrorConfig
from mirror_lib.config.references import References, provider_names
from mirror_lib.config.refusals import config_error
from mirror_lib.config.yaml_file import read_yaml

_READERS = {".yaml": read_yaml, ".yml": read_yaml, ".properties": read_mm2}


def load(path: str, environ: Mapping[str, str] = os.environ) -> MirrorConfig:
    """Read and check a whole file; `environ` answers `${env:NAME}`.

    Raises `ConfigError` with `file:line`; neither it nor the result's `warnings` and `repr` hold a secret.
    """
    document = _with_values(_read(path), environ)
    return build_config(document, sort_keys(document))


def _read(path: str) -> Document:
    reader = _READERS.get(Path(path).suffix.lower())
    if reader is None:
        raise config_error("a configuration file must end in .yaml, .yml or .properties", path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise config_error(f"the file cannot be read: {error.strerror}", path) from None
    return reader(content, path)


def _with_values(document: Document, environ: Mapping[str, str]) -> Document:
    bare = {entry.key: entry.text for entry in document.entries if not entry.scope}
    references = References(environ, provider_names(bare))
    return replace(document, entries=tuple(references.resolve(entry) for entry in document.entries))

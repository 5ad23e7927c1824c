"""Files of any dialect in, the text of our YAML out, read back and found to mean the same."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Mapping, Sequence, Tuple, Union

from mirror_lib.config.document import Document
from mirror_lib.config.loader import config_of, read_document, with_values
from mirror_lib.config.yaml_reader import read_yaml
from mirror_lib.config.yaml_writer import yaml_text
from mirror_lib.errors import ConfigError


@dataclass(frozen=True)
class Conversion:
    """The text of a YAML file, and the warnings of the files it was made from. The text may hold secrets they had."""

    text: str = field(repr=False)
    warnings: Tuple[str, ...]


def convert(paths: Union[str, Sequence[str]], environ: Mapping[str, str] = os.environ) -> Conversion:
    """The file or files as YAML. Raises `ConfigError` where `load` would, but for references that are not found here:
    they are written as they are, so the machine that converts need not know them."""
    return convert_document(read_document(paths), environ)


def convert_document(document: Document, environ: Mapping[str, str] = os.environ) -> Conversion:
    """The same for a document that was read already."""
    text = yaml_text(document)
    try:
        resolved = with_values(document, environ)
    except ConfigError as error:
        return Conversion(text, (f"values were not checked: {error}",))
    config = config_of(resolved)
    again = config_of(with_values(read_yaml(text.encode("utf-8"), "the YAML"), environ))
    if replace(again, warnings=()) != replace(config, warnings=()):
        raise ConfigError(f"{document.path} cannot be said in YAML without a change of meaning", "please report it")
    return Conversion(text, config.warnings)

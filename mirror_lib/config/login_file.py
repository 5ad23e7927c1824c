"""A document in; the same out, with the login line of the JAAS file that Java's options in the environment name.

Kafka's own scripts take such a file in KAFKA_OPTS. Its `KafkaClient` section is for every cluster that has no
`sasl.jaas.config` of its own.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Mapping, Optional

from mirror_lib.config.entries import Document, Entry
from mirror_lib.config.refusals import config_error

_VARIABLES = ("KAFKA_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS")
_OPTION = re.compile(r'-Djava\.security\.auth\.login\.config==?"?([^\s"]+)')
# What stands in quotes is kept: it may look like a comment.
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|(?<![^\s;])//[^\n]*|^\s*#[^\n]*|/\*[\s\S]*?\*/', re.MULTILINE)
_SECTION = re.compile(r"\bKafkaClient\s*\{(.*?;)\s*\}\s*;", re.DOTALL)
_KEY = "sasl.jaas.config"


def with_login_file(document: Document, environ: Mapping[str, str]) -> Document:
    """The document with a bare `sasl.jaas.config`, the weakest there is, if a cluster uses SASL and a file is named.

    Raises `ConfigError` where that file cannot be read. Without a `KafkaClient` section it is not for Kafka.
    """
    path = _named(environ)
    uses_sasl = any(
        entry.key.endswith("security.protocol") and entry.text.strip().upper().startswith("SASL")
        for entry in document.entries
    )
    if path is None or not uses_sasl or any(not each.scope and each.key == _KEY for each in document.entries):
        return document
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise config_error(f"the JAAS file cannot be read: {error.strerror}", path) from None
    section = _SECTION.search(_COMMENT.sub(r"\1", text))
    if section is None:
        return document
    entry = Entry("", _KEY, section.group(1).strip(), path, hidden=True)
    return replace(document, entries=(*document.entries, entry))


def _named(environ: Mapping[str, str]) -> Optional[str]:
    found = (_OPTION.search(environ.get(name, "")) for name in _VARIABLES)
    return next((match.group(1) for match in found if match is not None), None)

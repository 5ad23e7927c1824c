"""Loads configuration files into one frozen `MirrorConfig`: YAML, MirrorMaker 2's `.properties`, Connect's files.

References `${env:NAME}`, `${file:/path:key}` and `${dir:/path:file}` are replaced here, by entry, so that errors name
the line and never show what a reference stands for.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Union

import javaproperties

from mirror_lib.config.build import build_config
from mirror_lib.config.connect_reader import Connector, connector_of_properties, join_connectors, read_connectors
from mirror_lib.config.document import (
    Document,
    Entry,
    Value,
    config_error,
    entry_of,
    follows,
    joined,
    read_properties,
)
from mirror_lib.config.keys import sort_keys
from mirror_lib.config.mm2_reader import read_mm2
from mirror_lib.config.model import MirrorConfig
from mirror_lib.config.yaml_reader import read_yaml
from mirror_lib.errors import ConfigError

_REFERENCE = re.compile(r"\$\{([A-Za-z][\w-]*):([^}]*)\}")
_CLASSES = {"EnvVarConfigProvider": "env", "FileConfigProvider": "file", "DirectoryConfigProvider": "dir"}
_KNOWN = "${env:NAME}, ${file:/path:key} and ${dir:/path:file}"


class References:
    """Looks references up. `names` are further provider names of the file: `config.providers.NAME.class`."""

    def __init__(self, environ: Mapping[str, str], names: Mapping[str, str]) -> None:
        self._environ = environ
        self._names = {"env": "env", "file": "file", "dir": "dir", **names}
        self._lookups: Mapping[str, Callable[[str], Optional[str]]] = {
            "env": self._from_environment,
            "file": _from_file,
            "dir": _from_directory,
        }

    def resolve(self, entry: Entry) -> Entry:
        """The entry with every reference replaced; one with a reference is marked hidden. Raises `ConfigError`."""
        if not _REFERENCE.search(entry.text):
            return entry
        value: Value = (
            self._replace(entry.value, entry)
            if isinstance(entry.value, str)
            else tuple(self._replace(item, entry) for item in entry.value)
        )
        return replace(entry, value=value, hidden=True)

    def _replace(self, text: str, entry: Entry) -> str:
        return _REFERENCE.sub(lambda match: self._look_up(match, entry), text)

    def _look_up(self, match: re.Match[str], entry: Entry) -> str:
        provider, where = match.group(1), match.group(2)
        kind = self._names.get(provider)
        if kind is None:
            sentence = f"{entry.written}: {match.group(0)} names an unknown provider; take {_KNOWN}"
            raise config_error(sentence, entry.place)
        found = self._lookups[kind](where)
        if found is None:
            raise config_error(f"{entry.written}: {match.group(0)} was not found", entry.place)
        return found

    def _from_environment(self, where: str) -> Optional[str]:
        # Kafka's own form has an empty path: ${env::NAME}.
        return self._environ.get(where.lstrip(":"))


def provider_names(settings: Mapping[str, str]) -> Dict[str, str]:
    """From bare keys such as `config.providers.secrets.class`: provider name to `env`, `file` or `dir`."""
    names = {}
    for key, value in settings.items():
        match = re.fullmatch(r"config\.providers\.([\w-]+)\.class", key)
        kind = _CLASSES.get(value.strip().rpartition(".")[2])
        if match and kind:
            names[match.group(1)] = kind
    return names


def _from_file(where: str) -> Optional[str]:
    path, _, key = where.rpartition(":")
    try:
        # Unlike other files of properties: Kafka's provider reads it as UTF-8.
        with open(path, encoding="utf-8") as stream:
            found: Optional[str] = javaproperties.load(stream).get(key)
    except (OSError, ValueError):
        return None
    return found


def _from_directory(where: str) -> Optional[str]:
    folder, _, name = where.rpartition(":")
    try:
        # A name with a slash could leave the folder; Kafka's provider refuses it as well.
        return None if not folder or "/" in name else Path(folder, name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


_YAML = (".yaml", ".yml")
_PROPERTIES = ".properties"
_JSON = ".json"

_VARIABLES = ("KAFKA_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS")
_OPTION = re.compile(r'-Djava\.security\.auth\.login\.config==?"?([^\s"]+)')
# What stands in quotes is kept: it may look like a comment.
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|(?<![^\s;])//[^\n]*|^\s*#[^\n]*|/\*[\s\S]*?\*/', re.MULTILINE)
_SECTION = re.compile(r"\bKafkaClient\s*\{(.*?;)\s*\}\s*;", re.DOTALL)
_KEY = "sasl.jaas.config"


def with_login_file(document: Document, environ: Mapping[str, str]) -> Document:
    """The document with a bare `sasl.jaas.config`, the weakest there is, if a cluster uses SASL and a file is named.

    Kafka's own scripts take a JAAS file in KAFKA_OPTS. Its `KafkaClient` section is for every cluster that has no
    `sasl.jaas.config` of its own.

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


def load(paths: Union[str, Sequence[str]], environ: Mapping[str, str] = os.environ) -> MirrorConfig:
    """Read and check a whole configuration; `environ` answers `${env:NAME}`. Several paths are connectors' files.

    Raises `ConfigError` with `file:line`; neither it nor the result's `warnings` and `repr` hold a secret.
    """
    return checked(read_document(paths), environ)


def checked(document: Document, environ: Mapping[str, str]) -> MirrorConfig:
    """The configuration that a document comes to. Raises one `ConfigError` that lists every wrong entry: each is left
    out once it was found, so that the others are checked too."""
    errors: List[ConfigError] = list(document.errors)
    wrong: List[Entry] = []
    while True:
        try:
            config = config_of(with_values(document, environ))
            break
        except ConfigError as error:
            entry = entry_of(error, document.entries)
            if entry is None:
                # Not about one entry. It may follow from one that was left out, or that could not be read.
                if not errors or not (document.errors or follows(error, wrong)):
                    errors.append(error)
                break
            errors.append(error)
            wrong.append(entry)
            document = replace(document, entries=tuple(each for each in document.entries if each is not entry))
    if errors:
        raise joined(errors, document.path)
    return config


def config_of(document: Document) -> MirrorConfig:
    """The configuration that a document, its references replaced, comes to. Raises the first `ConfigError`."""
    return build_config(document, sort_keys(document))


def read_document(paths: Union[str, Sequence[str]]) -> Document:
    """The file or files as they are: nothing checked, references not replaced. Raises `ConfigError`."""
    given = [paths] if isinstance(paths, str) else list(paths)
    connectors: List[Connector] = []
    for path in given:
        found = _connectors(path)
        if found:
            connectors += found
        elif len(given) > 1:
            raise config_error("several files go together only where each holds connectors; this one does not", path)
    if connectors:
        return join_connectors(connectors, ", ".join(given))
    (path,) = given
    return read_yaml(_content(path), path) if _ending(path) in _YAML else read_mm2(_content(path), path)


def with_values(document: Document, environ: Mapping[str, str]) -> Document:
    """The document with what its references stand for, and the login of a JAAS file that Java's options name.

    Raises `ConfigError` where one of them is not found.
    """
    document = with_login_file(document, environ)
    bare = {entry.key: entry.text for entry in document.entries if not entry.scope}
    references = References(environ, provider_names(bare))
    return replace(document, entries=tuple(references.resolve(entry) for entry in document.entries))


def _connectors(path: str) -> List[Connector]:
    ending = _ending(path)
    if ending == _JSON:
        return list(read_connectors(_content(path), path))
    if ending == _PROPERTIES:
        connector = connector_of_properties(read_properties(_content(path), path)[0], path)
        return [] if connector is None else [connector]
    return []


def _ending(path: str) -> str:
    ending = Path(path).suffix.lower()
    if ending not in (*_YAML, _PROPERTIES, _JSON):
        raise config_error("a configuration file must end in .yaml, .yml, .properties or .json", path)
    return ending


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise config_error(f"the file cannot be read: {error.strerror}", path) from None

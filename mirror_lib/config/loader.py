"""Loads configuration files into one frozen `MirrorConfig`: YAML, MirrorMaker 2's `.properties`, Connect's files.

References `${env:NAME}`, `${file:/path:key}` and `${dir:/path:file}` are replaced here, by entry, so that errors name
the line and never show what a reference stands for.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import javaproperties

from mirror_lib.config.build import build_config
from mirror_lib.config.connect_reader import Connector, connector_of_properties, join_connectors, read_connectors
from mirror_lib.config.document import Document, Entry, Errors, config_error, content_of, read_properties
from mirror_lib.config.mm2_reader import read_mm2
from mirror_lib.config.model import MirrorConfig
from mirror_lib.config.settings import unused
from mirror_lib.config.sorted_keys import Keys
from mirror_lib.config.yaml_reader import read_yaml

_REFERENCE = re.compile(r"\$\{([A-Za-z][\w-]*):([^}]*)\}")
_CLASSES = {"EnvVarConfigProvider": "env", "FileConfigProvider": "file", "DirectoryConfigProvider": "dir"}
_PROVIDER = re.compile(r"config\.providers\.([\w-]+)\.class")
_KNOWN = "${env:NAME}, ${file:/path:key} or ${dir:/folder:file}"


Lookup = Callable[[str], Optional[str]]


def _resolved(entry: Entry, lookups: Mapping[str, Lookup]) -> Entry:
    """The entry with every reference replaced; one with a reference is marked hidden. Raises `ConfigError`."""
    if not _REFERENCE.search(entry.text):
        return entry

    def look_up(match: re.Match[str]) -> str:
        provider, where = match.groups()
        if provider not in lookups:
            shown, form = match.group(0), _KNOWN
            if provider.isupper():  # a shell's variable, with a default that may be secret
                shown, form = f"${{{provider}:…}}", f"${{env:{provider}}}"
            way = f"export the value or mount it as a file, and write {form}"
            raise config_error(f"{entry.written}: {shown} names no provider that is known here; {way}", entry.place)
        try:
            found = lookups[provider](where)
        except (OSError, ValueError):
            found = None
        if found is None:
            name, mark, _ = match.group(0).partition(":-")  # what follows may be a secret
            sentence = f"{entry.written}: {name}{mark} was not found; set it, or write the value itself"
            raise config_error(sentence, entry.place)
        return found

    texts = [entry.value] if isinstance(entry.value, str) else entry.value
    values = tuple(_REFERENCE.sub(look_up, text) for text in texts)
    return replace(entry, value=values[0] if isinstance(entry.value, str) else values, hidden=True)


def _lookups(document: Document, environ: Mapping[str, str]) -> Mapping[str, Lookup]:
    """By provider: `env`, `file`, `dir`, and the names that the file gives these by `config.providers.NAME.class`."""
    # Kafka's own form has an empty path: ${env::NAME}.
    known: Dict[str, Lookup] = {
        "env": lambda where: environ.get(where.lstrip(":")),
        "file": _from_file,
        "dir": _from_directory,
    }
    # Strimzi's operator gives the providers names of its own.
    named = {**known, **{f"strimzi{name}": look_up for name, look_up in known.items()}}
    for entry in (each for each in document.entries if not each.scope):
        match = _PROVIDER.fullmatch(entry.key)
        kind = _CLASSES.get(entry.text.strip().rpartition(".")[2])
        if match and kind:
            named[match.group(1)] = known[kind]
    return named


def _from_file(where: str) -> Optional[str]:
    path, _, key = where.rpartition(":")
    # Unlike other files of properties: Kafka's provider reads it as UTF-8.
    found: Optional[str] = javaproperties.loads(Path(path).read_text(encoding="utf-8")).get(key)
    return found


def _from_directory(where: str) -> Optional[str]:
    folder, _, name = where.rpartition(":")
    # A name with a slash could leave the folder; Kafka's provider refuses it as well.
    return None if not folder or "/" in name else Path(folder, name).read_text(encoding="utf-8")


_YAML = (".yaml", ".yml")
# A list of connectors; a line such as [section] is a key of a `.properties` file.
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{|\[\s*[{\]])")
_KIND = re.compile(rb"(?:^|[{,])[\s{,-]*[\"']?kind[\"']?\s*:\s*[\"']?(\w+)", re.MULTILINE)
_CONNECTORS = ("the connectors that its operator makes of it: `curl localhost:8083/connectors?expand=info > "
               "connectors.json` in a pod of Connect")
# What to give for a resource of Strimzi's or Confluent's operator.
_INSTEAD = {"KafkaMirrorMaker2": _CONNECTORS, "KafkaConnector": _CONNECTORS, "Connector": _CONNECTORS,
            "KafkaMirrorMaker": "`mirror mm1` its pod's /tmp/strimzi-consumer.properties and "
                                "/tmp/strimzi-producer.properties"}

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
    named = next(filter(None, (_OPTION.search(environ.get(name, "")) for name in _VARIABLES)), None)
    uses_sasl = any(
        entry.key.endswith("security.protocol") and entry.text.strip().upper().startswith("SASL")
        for entry in document.entries
    )
    bare = (each for each in document.entries if not each.scope and not each.ignored)
    if named is None or not uses_sasl or any(each.key == _KEY for each in bare):
        return document
    path = named.group(1)
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise config_error(f"the JAAS file cannot be read: {error.strerror}", path) from None
    section = _SECTION.search(_COMMENT.sub(r"\1", text))
    if section is None:
        return document
    entry = Entry("", _KEY, section.group(1).strip(), path, hidden=True)
    return replace(document, entries=(*document.entries, entry))


def load(paths: Union[str, Sequence[str]], environ: Mapping[str, str] = os.environ) -> MirrorConfig:
    """Read and check a whole configuration; `environ` answers `${env:NAME}`. Several paths are connectors' files.

    Raises `ConfigError` with `file:line`; neither it nor the result's `warnings` and `repr` hold a secret.
    """
    return checked(read_document(paths), environ)


def checked(document: Document, environ: Mapping[str, str]) -> MirrorConfig:
    """The configuration that a document comes to. Raises one `ConfigError` that lists every wrong entry."""
    resolved, errors = with_values(document, environ)
    return build_config(resolved, Keys(resolved), errors)


def read_document(paths: Union[str, Sequence[str]]) -> Document:
    """Nothing is checked, and references are not replaced. Raises `ConfigError`."""
    given = {path: content_of(path) for path in ([paths] if isinstance(paths, str) else paths)}
    for path, content in given.items():
        _refuse_resource(content, path)
    connectors = {path: _connectors(content, path) for path, content in given.items()}
    other = next((path for path, found in connectors.items() if not found), None)
    if other is None:
        return join_connectors([each for found in connectors.values() for each in found], ", ".join(given))
    if len(given) > 1:
        sentence = "several files go together only where each holds connectors; leave out a worker's own file"
        raise config_error(sentence, other)
    return read_yaml(given[other], other) if other.lower().endswith(_YAML) else read_mm2(given[other], other)


def _connectors(content: bytes, path: str) -> List[Connector]:
    """The connectors of a file; none where it is of another dialect. Its ending decides only for YAML, ours."""
    if path.lower().endswith(_YAML):
        return []
    if path.lower().endswith(".json") or _JSON.match(content):
        return list(read_connectors(content, path))
    connector = connector_of_properties(read_properties(content, path))
    return [] if connector is None else [connector]


def _refuse_resource(content: bytes, path: str) -> None:
    """Raise `ConfigError` for a resource of Kubernetes."""
    kinds = {match.group(1).decode(): match for match in reversed([*_KIND.finditer(content)])}
    kind = next((each for each in (*_INSTEAD, *reversed(kinds)) if each in kinds), None)
    if kind is not None and b"apiVersion" in content:
        instead = _INSTEAD.get(kind, "the file that is in it")
        line = content.count(b"\n", 0, kinds[kind].start(1)) + 1
        raise config_error(f"{kind} is a resource of Kubernetes and is not read; give {instead}", f"{path}:{line}")


def with_values(document: Document, environ: Mapping[str, str]) -> Tuple[Document, Errors]:
    """The document with what its references stand for, and the login of a JAAS file that Java's options name; and the
    errors of entries for which that was not found, which are left out."""
    errors = Errors()
    with errors.kept():
        document = with_login_file(document, environ)
    lookups = _lookups(document, environ)
    entries = []
    for entry in document.entries:
        row = unused(entry.key)
        with errors.kept():
            idle = entry.ignored or (row is not None and not row.refused)
            entries.append(entry if idle else _resolved(entry, lookups))
    return replace(document, entries=tuple(entries)), errors

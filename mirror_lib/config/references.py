"""Entries with `${env:NAME}`, `${file:/path:key}` or `${dir:/path:file}` in, entries with what these stand for out.

Error messages name the reference and never a value.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Callable, Dict, Mapping, Optional

import javaproperties

from mirror_lib.config.document import Entry, Value
from mirror_lib.config.refusals import config_error

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


def standard_references(text: str, names: Mapping[str, str]) -> str:
    """The text with references through providers of the file's own, `names`, as the three that always work."""
    return _REFERENCE.sub(lambda match: f"${{{names.get(match.group(1), match.group(1))}:{match.group(2)}}}", text)


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

"""Reads a MirrorMaker 2 `.properties` file into a `Document`: each key is split into its scope and the rest.

`tidy` removes trailing comments and quotes around a value, which such files often have, and warns of it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Dict, List, Sequence, Tuple

from mirror_lib.config.document import (
    MM2,
    Document,
    Entry,
    Property,
    Value,
    config_error,
    read_properties,
    unknown_cluster,
)
from mirror_lib.config.settings import BY_NAME, Setting
from mirror_lib.config.values import PATTERNS, items
from mirror_lib.errors import ConfigError

# Kafka's own pages also write comments as `// …`.
_COMMENT_AFTER = re.compile(r"((^|\s+)#|\s+//\s).*$", re.DOTALL)
_QUOTED = re.compile(r"\s*([\"'])(.*)\1\s*", re.DOTALL)


def read_mm2(content: bytes, path: str) -> Document:
    """The file's clusters and keys, and the errors of keys that name no cluster. Raises `ConfigError` where there are
    no clusters."""
    found, comments = read_properties(content, path)
    aliases, warnings = _aliases(found, path)
    last: Dict[str, Entry] = {}
    errors: List[ConfigError] = []
    for one in found:
        try:
            scope = _scope(one, aliases, path)
        except ConfigError as error:
            errors.append(error)
            continue
        key = one.key[len(scope) + 1 :] if scope else one.key
        # A name that is given twice counts the second time, as java.util.Properties has it.
        place = f"{path}:{one.line}"
        if one.key in last:
            warnings.append(f"{one.key} is given twice, at {last[one.key].place} and {place}; the last counts")
        last[one.key] = Entry(scope, key, one.value, place)
    places = tuple((comment.text, f"{path}:{comment.line}") for comment in comments)
    entries = tuple(last.values())
    return Document(path, MM2, aliases, entries, places, tuple(warnings), errors=tuple(errors))


def tidy(entry: Entry, setting: Setting) -> Tuple[Entry, List[str]]:
    """The entry with its value as its writer meant it, and a warning for each thing that was put right."""
    value, warnings = _without_comment(entry)
    quoted = _QUOTED.fullmatch(value)
    result: Value = value
    if quoted:
        result = quoted.group(2)
        warnings.append(f"{entry.written}: quotes are part of a value in .properties; read without ({entry.place})")
        if setting.kind is PATTERNS:
            result = tuple(_meant(item) for item in items(quoted.group(2)))
            if result != items(quoted.group(2)):
                warnings.append(f"{entry.written}: '*' at the start of a pattern is read as '.*' ({entry.place})")
    return replace(entry, value=result), warnings


def _without_comment(entry: Entry) -> Tuple[str, List[str]]:
    value = _COMMENT_AFTER.sub("", entry.text)
    if value == entry.text:
        return value, []
    mark = "#" if entry.text[len(value) :].lstrip().startswith("#") else "//"
    return value, [
        f"{entry.written}: .properties has no comments after a value, but '{mark}' is read as one ({entry.place})"
    ]


def _meant(pattern: str) -> str:
    # "*.internal" in quotes stands in published examples; Java takes the quote as what is repeated.
    return "." + pattern if pattern.startswith("*") else pattern


def _aliases(found: Sequence[Property], path: str) -> Tuple[Tuple[str, ...], List[str]]:
    given = [one for one in found if one.key == "clusters"]
    if not given:
        plain = any(one.key in ("bootstrap.servers", "zookeeper.connect", "zk.connect") for one in found)
        advice = "this looks like a client's file, as MirrorMaker 1 takes it; " if plain else ""
        raise config_error(f"no clusters are given; {advice}write clusters = A, B", path)
    entry = Entry("", "clusters", given[-1].value, f"{path}:{given[-1].line}")
    tidied, warnings = tidy(entry, BY_NAME["clusters"])
    aliases = items(tidied.value)
    twice = [alias for alias in dict.fromkeys(aliases) if aliases.count(alias) > 1]
    warnings += [f"clusters names {alias} twice ({entry.place})" for alias in twice]
    return tuple(dict.fromkeys(aliases)), warnings


def _scope(one: Property, aliases: Sequence[str], path: str) -> str:
    """`A->B`, `A` or `""`. A key that is a setting as it stands is bare, whatever the clusters are called."""
    longest_first = sorted(aliases, key=len, reverse=True)
    if one.value.startswith("->") or one.key.endswith("->"):
        sentence = f"a blank ends the key in .properties, which leaves {one.key}; write A->B without blanks"
        raise config_error(sentence, f"{path}:{one.line}")
    if "->" in one.key:
        source, _, rest = one.key.partition("->")
        target = next((alias for alias in longest_first if rest.startswith(alias + ".")), None)
        for alias, known in ((source, source in aliases), (rest.partition(".")[0], target is not None)):
            if not known:
                raise unknown_cluster(alias, aliases, one.key, f"{path}:{one.line}")
        return f"{source}->{target}"
    if one.key in BY_NAME:
        return ""
    return next((alias for alias in longest_first if one.key.startswith(alias + ".")), "")

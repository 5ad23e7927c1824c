"""A Java `.properties` file in; keys, values, comments and their lines out, as `java.util.Properties` reads it."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Tuple

import javaproperties

from mirror_lib.config.refusals import config_error

_LINE_END = re.compile(r"\r\n|\r|\n")


class Property(NamedTuple):
    """One key with its value, escapes undone and continued lines joined. `line` is where it begins, from 1."""

    key: str
    value: str
    line: int


class Comment(NamedTuple):
    """The text of one comment line."""

    text: str
    line: int


def read_properties(content: bytes, path: str) -> Tuple[List[Property], List[Comment]]:
    """All properties and comments in file order, repeated keys included. Raises `ConfigError` for a bad escape."""
    # Java reads these files as ISO-8859-1, whatever an editor shows.
    text = content.decode("iso-8859-1")
    found: List[Property] = []
    comments: List[Comment] = []
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                found.append(Property(element.key, element.value, line))
            elif isinstance(element, javaproperties.Comment):
                comments.append(Comment(element.value, line))
            line += len(_LINE_END.findall(element.source))
    except javaproperties.InvalidUEscapeError:
        raise config_error("\\u must be followed by four hexadecimal digits", f"{path}:{line}") from None
    return found, comments

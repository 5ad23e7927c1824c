"""Builds HTML and SVG. Every text is escaped, unless it is `Markup` already."""

from __future__ import annotations

import html
from typing import Iterable, Union

from mirror_lib.text import visible, without_logins

VOID = ("br", "input", "meta")


class Markup(str):
    """HTML that is complete: its texts are escaped."""


# What an element holds: text to escape, markup, several of either, or nothing.
Child = Union[str, None, Iterable["Child"]]
Attribute = Union[str, int, float, bool, None]


def shown(text: str) -> str:
    """`text` as the page may show it. Characters that are invisible, or turn the direction of text, appear as their
    escape, such as `\\u202e`. A login and a query in an address, also in an error of a library, appear as `***`."""
    return without_logins(visible(text, keep=""))


def escaped(text: str) -> Markup:
    return Markup(html.escape(shown(text), quote=True))


def tag(name: str, *children: Child, **attributes: Attribute) -> Markup:
    """One element. In the name of an attribute `_` stands for `-`, and `cls` is `class`. `None` and `False` leave the
    attribute out; `True` writes it without a value."""
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    return Markup("".join(map(_child, children)))


def prose(text: str) -> Markup:
    """A sentence with `code` in backticks."""
    parts = text.split("`")
    return join(*(tag("code", part) if number % 2 else part for number, part in enumerate(parts)))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escaped(child)
    return "".join(map(_child, child))


def _attribute(key: str, value: Attribute) -> str:
    name = "class" if key == "cls" else key.rstrip("_").replace("_", "-")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    if isinstance(value, float):
        value = f"{value:.1f}".rstrip("0").rstrip(".")
    return f' {name}="{escaped(str(value))}"'

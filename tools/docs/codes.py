"""Writes docs/fix/codes.md from the table of codes: `python -m tools.docs.codes > docs/fix/codes.md`."""

from __future__ import annotations

from mirror_lib.codes import Entry, grouped_entries

_HEAD = """\
# Codes

Errors, refusals and incidents have a code. `mirror help MIR-304` prints the entry of a code, and `mirror help` lists
all codes. A code never gets another meaning.

Made by `python -m tools.docs.codes > docs/fix/codes.md` from the table that the command reads.
"""


def page() -> str:
    """The page as Markdown. The heading of an entry is its code, so its anchor is the code in lower case."""
    parts = [_HEAD]
    for title, entries in grouped_entries():
        parts += [f"## {title}\n", *map(_section, entries)]
    return "\n".join(parts)


def _section(each: Entry) -> str:
    parts = (("What happened", each.happened), ("The data", each.data), ("What to do", each.do))
    return "\n".join([f"### {each.code}\n", f"{each.title}.\n", *(f"- **{name}:** {text}" for name, text in parts), ""])


if __name__ == "__main__":
    print(page(), end="")

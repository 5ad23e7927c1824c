"""The codes of errors, refusals and incidents, for `mirror help CODE`. The page docs/fix/codes.md is the table.

A code is given once. It never gets another meaning, and the code of an entry that was removed (`REMOVED`) is not given
again: scripts, alerts and tickets name it. The hundreds are groups.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import List, Mapping, Optional, Sequence

from mirror_lib.ledger import records

PREFIX = "MIR-"
REMOVED = ("MIR-320", "MIR-323", "MIR-324", "MIR-331")
# A link in a checkout, a copy in a wheel.
_PAGE = Path(__file__).with_name("codes.md")
_ENTRY = re.compile(
    r"### (\S+)\n\n(.+)\.\n\n(?:- \*\*Cause:\*\* (.+)\n)?- \*\*Data:\*\* (.+)\n- \*\*Remedy:\*\* (.+)\n"
)


@dataclass(frozen=True)
class Entry:
    """One code. `cause`: what the mirror found, empty if `title` says it. `data`: which records are copied, missing or
    unchanged. `remedy`: what the operator does next. Each is one to three sentences, in Markdown without links."""

    code: str
    title: str
    cause: str
    data: str
    remedy: str


# The code of each kind of incident, which the table `events` names by `kind`.
INCIDENT_CODES: Mapping[str, str] = {
    records.DATA_LOST: "MIR-601",
    records.OFFSETS_SKIPPED: "MIR-602",
    records.COPIED_AGAIN: "MIR-603",
    records.REMOTE_LOG_HEALED: "MIR-604",
    records.TOPIC_RECREATED: "MIR-605",
    records.PARTITION_STOPPED: "MIR-606",
    records.GROUP_LOST_RECORDS: "MIR-607",
    records.TOPIC_ADDED: "MIR-608",
    records.PARTITIONS_ADDED: "MIR-609",
    records.STARTED_LATER: "MIR-610",
    records.TOPIC_BLOCKED: "MIR-611",
}


@lru_cache(maxsize=None)
def grouped_entries() -> Mapping[str, Sequence[Entry]]:
    """The entries by the title of their group, in the order of the page."""
    _, *parts = re.split(r"^## (.+)$", _PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {title: [Entry(*each) for each in _ENTRY.findall(text)] for title, text in zip(parts[::2], parts[1::2])}


def entries() -> List[Entry]:
    return [each for own in grouped_entries().values() for each in own]


def entry(word: str) -> Optional[Entry]:
    """The entry of a code, given as `MIR-304`, `mir-304` or `304`; `None` where no entry has it."""
    code = word.strip().upper()
    code = code if code.startswith(PREFIX) else f"{PREFIX}{code}"
    return next((each for each in entries() if each.code == code), None)


def named(kind: str) -> str:
    """A kind of incident with its code; alone where it is one of a newer release."""
    return f"{kind} ({INCIDENT_CODES[kind]})" if kind in INCIDENT_CODES else kind

"""Words for the incidents of the table `events`: one line for the rows of one event, with the names that it concerns.
The log of a run and `mirror status` print them.
"""

from __future__ import annotations

import logging
from typing import Dict, Iterable, List, Sequence, Tuple

from mirror_lib.codes import named
from mirror_lib.ledger.records import NEWS, PARTITION_STOPPED, Incident
from mirror_lib.text import counted

log = logging.getLogger("mirror.events")
# At most so many events of one moment are logged.
EVENTS_LOGGED = 5


def event_lines(incidents: Iterable[Incident]) -> List[str]:
    return [_line(rows) for rows in events(incidents)]


def events(incidents: Iterable[Incident]) -> List[List[Incident]]:
    """The rows of each event, in the order of the first ones: a topic that was re-created has a row a partition."""
    found: Dict[Tuple[str, str, str], List[Incident]] = {}
    for each in incidents:
        found.setdefault((each.kind, each.topic, each.reason), []).append(each)
    return list(found.values())


def event_words(rows: Sequence[Incident]) -> str:
    """The reason of one event, and the number of offsets and partitions that it concerns."""
    offsets = sum(each.until_offset - each.from_offset for each in rows if 0 <= each.from_offset < each.until_offset)
    partitions = f" of {counted(len(rows), 'partition')}" if len(rows) > 1 else ""
    return rows[0].reason + (f" ({counted(offsets, 'offset')}{partitions})" if offsets else "")


def log_events(flow: str, incidents: Sequence[Incident]) -> None:
    """Log the first events of `flow` among these; `mirror status` and the table have all."""
    for level, of_news in ((logging.WARNING, False), (logging.INFO, True)):
        lines = event_lines(each for each in incidents if (each.kind in NEWS) == of_news)
        for line in lines[:EVENTS_LOGGED]:
            log.log(level, "%s: %s", flow, line)
        if len(lines) > EVENTS_LOGGED:
            log.log(level, "%s: %d more events, see the table events", flow, len(lines) - EVENTS_LOGGED)


def _line(rows: Sequence[Incident]) -> str:
    first = rows[0]
    place = first.topic if len(rows) > 1 or first.partition < 0 else f"{first.topic}-{first.partition}"
    place += f" at offset {first.from_offset}" if first.kind == PARTITION_STOPPED and len(rows) == 1 else ""
    prefix = "" if first.topic in first.reason else f"{place}: "
    return f"{named(first.kind)}: {prefix}{event_words(rows)}"

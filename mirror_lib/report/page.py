"""Renders a report as one HTML page without an address in it, by the template page.html: style, script and charts are
inline.

The page's Content-Security-Policy allows this one style and this one script, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mirror_lib.codes import INCIDENT_CODES, entry, named
from mirror_lib.report.charts import charts
from mirror_lib.report.settings import SettingValue, unset_count
from mirror_lib.status.facts import DEGRADED, DIED, EQUAL, HEALTHY, FlowStatus, IncidentStatus, RunStatus, topics_of
from mirror_lib.status.render import GROUP, LAG, PARTITION, TOPIC, facts, lag
from mirror_lib.text import NUMBER, Column, counted, duration, grouped, moment, size, utc, visible, without_logins

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class FlowReport:
    """One flow. `clusters`: source and target, each with what the page may show of its configuration."""

    status: FlowStatus
    clusters: Tuple[Tuple[str, str], ...]
    settings: Tuple[SettingValue, ...] = ()


@dataclass(frozen=True)
class MirrorReport:
    """The whole page. `made_at` is Unix seconds, `state` the folder of the tables. `files`: each file of the
    configuration with its SHA-256 in hexadecimal digits."""

    name: str
    made_at: float
    version: str
    state: str
    trigger: str
    flows: Tuple[FlowReport, ...]
    files: Tuple[Tuple[str, str], ...]


def page(report: MirrorReport) -> str:
    environment = Environment(
        autoescape=True,
        finalize=shown,
        loader=FileSystemLoader(str(FOLDER)),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters.update(prose=prose, sha256=_sha256)
    functions = (Counter, cell, charts, counted, facts, lag, named, topics_of, unset_count, utc)
    return environment.get_template("page.html").render(
        {each.__name__: each for each in functions},
        report=report,
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        script=Markup((FOLDER / "page.js").read_text(encoding="utf-8")),
        tables=TABLES,
        entry=lambda kind: entry(INCIDENT_CODES.get(kind, "")),
    )


def shown(value: Any) -> Any:
    """A value as the page may show it. Characters that are invisible, or turn the direction of text, appear as their
    escape, such as `\\u202e`. A login and a query in an address, also in an error of a library, appear as `***`."""
    return value if isinstance(value, Markup) else without_logins(visible(str(value), keep=""))


def prose(sentence: str) -> Markup:
    """A sentence with `code` in backticks."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", escape(shown(sentence))))


def _sha256(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def cell(column: Column, row: Any) -> Tuple[str, Optional[float]]:
    """The text, with times in UTC, and the number that it is sorted by where it is no number itself."""
    value = column.get(row)
    if value is not None and column.show is moment:
        return utc(value), None
    return column.text(row), round(value, 3) if isinstance(value, float) else None


def _known(flow: FlowReport, value: Any) -> Any:
    """`None` for what could not be counted."""
    return None if flow.status.unread and not flow.status.partitions else value


def _of_status(column: Column) -> Column:
    return replace(column, get=lambda flow: _known(flow, column.get(flow.status)))


def _incidents(flow: FlowReport) -> Optional[int]:
    return None if flow.status.incidents is None else len(flow.status.losses)


def _last_verification(flow: FlowReport) -> Optional[str]:
    found = flow.status.verified
    if found is None:
        return None if flow.status.verifications is None else "never"
    return f"{found.verdict}, {utc(found.at)}"


def _offset(name: str) -> Callable[[IncidentStatus], Optional[int]]:
    """A partition or an offset of an incident; -1 is unknown."""
    return lambda each: None if getattr(each, name) < 0 else getattr(each, name)


def _outcome(run: RunStatus) -> str:
    return f"no end, no sign of life since {utc(run.last_sign)}" if run.end == DIED else run.end


# By what a row is.
TABLES: Dict[str, Sequence[Column]] = {
    "flow": (
        Column("Flow", lambda each: each.status.flow),
        Column("State", lambda each: each.status.state, mark=lambda each: each.status.state),
        Column("Topics", lambda each: _known(each, len(topics_of(each.status.partitions))), grouped),
        Column("Partitions", lambda each: _known(each, len(each.status.partitions)), grouped),
        *map(_of_status, LAG),
        Column("Groups", lambda each: len(each.status.groups) or (None if each.status.unread else 0), grouped),
        Column("Incidents", _incidents, grouped, "In 30 days"),
        Column("Last verification", _last_verification),
    ),
    "topic": (
        TOPIC[0],
        Column("Remote topic", lambda each: ", ".join(sorted({part.remote_topic for part in each.partitions}))),
        *TOPIC[1:],
    ),
    "partition": PARTITION,
    "group": GROUP,
    "incident": (
        Column("At", lambda each: each.at, moment),
        Column("Kind", lambda each: each.kind),
        Column("Topic", lambda each: each.topic),
        Column("Partition", _offset("partition"), NUMBER),
        Column("From offset", _offset("from_offset"), grouped),
        Column("Until offset", _offset("until_offset"), grouped),
        Column("Reason", lambda each: each.reason),
    ),
    "verification": (
        Column("At", lambda each: each.at, moment),
        Column("Verdict", lambda each: each.verdict, mark=lambda each: HEALTHY if each.verdict == EQUAL else DEGRADED),
        Column("Topics", lambda each: each.topics, grouped),
        Column("Differing", lambda each: each.differing, grouped),
        Column("Records", lambda each: each.records, grouped),
        Column("Scope", lambda each: each.scope),
        Column("First difference", lambda each: each.first_difference or None),
    ),
    "run": (
        Column("Started", lambda each: each.started, moment),
        Column("Ended", lambda each: each.ended, moment),
        Column("Duration", lambda each: each.seconds, duration),
        Column("Records", lambda each: each.signs[-1].records, grouped),
        Column("Bytes", lambda each: float(each.signs[-1].bytes), size),
        Column("Driver", lambda each: each.driver),
        Column("Outcome", _outcome, mark=lambda each: DEGRADED if each.failed or each.end == DIED else ""),
    ),
    "setting": (
        Column("Key", lambda each: each.name),
        Column("Value", lambda each: each.value),
        Column("Default", lambda each: each.default),
        Column("Where", lambda each: each.place),
    ),
}

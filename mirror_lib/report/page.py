"""Renders a report as one HTML page without an address in it: style, script and data are inline. Pure.

The page's Content-Security-Policy allows this one style and this one script, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from string import Template
from typing import Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

from mirror_lib.codes import INCIDENT_CODES, entry, named
from mirror_lib.report.charts import charts, moment, short_number
from mirror_lib.report.facts import DIED, RUNNING, RUNS_SHOWN, FlowReport, MirrorReport, RunRecord, VerificationRecord
from mirror_lib.report.markup import Markup, escaped, join, prose, tag
from mirror_lib.report.picture import Arrow, picture
from mirror_lib.report.settings import unchanged_count
from mirror_lib.report.tables import NUMBER, TIME, WORD, Cell, Column, Row, Table, table, tables_json
from mirror_lib.status.facts import (
    DEGRADED,
    HEALTHY,
    UNKNOWN,
    FlowStatus,
    GroupStatus,
    IncidentStatus,
    PartitionStatus,
    TopicStatus,
    topics_of,
)
from mirror_lib.text import counted, duration, grouped, size

NONE = Cell("-")
# So many incidents are listed, the latest first; the table `incidents` has the rest.
INCIDENTS_SHOWN = 1000


def page(report: MirrorReport) -> str:
    style, script = _file("page.css"), _file("page.js")
    sections = [_Section(number, each, report.made_at) for number, each in enumerate(report.flows)]
    flows = _flows_table(report)
    body = [_heading(report), _overview(report, flows), *(each.markup for each in sections), _files(report)]
    return Template(_file("page.html")).substitute(
        policy=policy(style, script),
        title=escaped(f"{report.name}: mirror report of {moment(report.made_at)} UTC"),
        style=style,
        body=join(*body, _signatures()),
        data=tables_json([flows, *(each for section in sections for each in section.tables)]),
        script=script,
    )


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def policy(style: str, script: str) -> str:
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    allowed = "; ".join(f"{kind}-src 'sha256-{each}'" for kind, each in zip(("style", "script"), hashes))
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _heading(report: MirrorReport) -> Markup:
    states = [
        tag("li", tag("a", each.status.flow, href=f"#flow-{number}"), " ", _badge(each.status.state))
        for number, each in enumerate(report.flows)
    ]
    made = f"Made {moment(report.made_at)} UTC by mirror {report.version}. All times on this page are UTC."
    return tag(
        "header",
        tag("p", "Mirror report", cls="kicker"),
        tag("h1", report.name),
        tag("p", made, cls="quiet"),
        tag("ul", *states, cls="states"),
    )


def _badge(state: str) -> Markup:
    mark = {HEALTHY: "✓", DEGRADED: "!", UNKNOWN: "?"}[state]
    return tag("span", f"{mark} {state}", cls=f"state {state}")


def _overview(report: MirrorReport, flows: Table) -> Markup:
    arrows = [
        Arrow(each.source.alias, each.target.alias, status.state, f"{status.state} · {_short_lag(status)}")
        for each in report.flows
        for status in [each.status]
    ]
    problems = [
        _problem(f"{each.status.flow}: {problem.what}", problem.remedy, problem.unknown)
        for each in report.flows
        for problem in each.status.problems
    ]
    return tag(
        "section",
        tag("h2", "Overview"),
        picture(arrows),
        table(flows),
        tag("h3", "Problems", id="problems"),
        tag("ul", *problems, cls="problems") if problems else tag("p", "None."),
        id="overview",
    )


def _problem(what: str, remedy: str, unknown: bool) -> Markup:
    mark = UNKNOWN if unknown else DEGRADED
    return tag("li", tag("strong", what), "What to do: ", prose(remedy), cls=mark)


def _short_lag(status: FlowStatus) -> str:
    if not status.partitions:
        return "lag unknown" if status.unread else "no topics"
    if not status.lag:
        return "no lag"
    age = "" if status.lag_seconds is None else f" · {duration(status.lag_seconds)}"
    return f"lag {short_number(status.lag)}{age}"


def _lag_words(status: FlowStatus) -> str:
    if not status.lag:
        return "unknown" if status.unread and not status.partitions else "none"
    age = "" if status.lag_seconds is None else f", the oldest record is {duration(status.lag_seconds)} old"
    return f"{counted(status.lag, 'offset')}{age}"


def _flows_table(report: MirrorReport) -> Table:
    columns = (
        *(Column("Flow"), Column("State", WORD), Column("Topics", NUMBER), Column("Partitions", NUMBER)),
        *(_LAG, _LAG_TIME, _KEPT),
        *(Column("Groups", NUMBER), Column("Incidents", NUMBER, "In 30 days"), Column("Last verification", TIME)),
    )
    return Table("flows", "flow", columns, tuple(_flow_row(each) for each in report.flows))


def _flow_row(each: FlowReport) -> Row:
    status, unread = each.status, bool(each.status.unread)
    topics = len({partition.topic for partition in status.partitions})
    missing = unread and not status.partitions
    incidents, verified = each.history.incidents, each.history.verifications
    last = "unknown" if verified is None else "never"
    if verified:
        last = f"{verified[-1].verdict}, {moment(verified[-1].at)}"
    equal = not verified or verified[-1].verdict == "equal"
    counts = (topics, len(status.partitions), status.lag)
    return Row(
        (
            Cell(status.flow),
            Cell(status.state, mark=status.state),
            *(Cell("unknown") if missing else _count(number) for number in counts),
            _seconds(status.lag_seconds),
            _left(status.kept_seconds),
            Cell("unknown") if unread and not status.groups else _count(len(status.groups)),
            Cell("unknown") if incidents is None else _count(len(incidents)),
            Cell(last, verified[-1].at if verified else None, "" if equal else DEGRADED),
        )
    )


_LAG = Column("Lag", NUMBER, "Source offsets after the last offset in the ledger")
_LAG_TIME = Column("Lag time", NUMBER, "Age of the oldest record that is still to be copied")
_KEPT = Column("Kept for", NUMBER, "How long, at least, the source keeps the records that are not copied yet")
_TOPIC = (
    *(Column("Topic"), Column("Remote topic"), Column("Partitions", NUMBER)),
    *(Column("Copied", NUMBER, "Share of what the source holds"), _LAG, _LAG_TIME, _KEPT),
    Column("Worst", NUMBER, "The partition with the greatest lag"),
)
_PARTITION = (
    *(Column("Partition"), Column("Log start", NUMBER), Column("Next offset", NUMBER), Column("Log end", NUMBER)),
    *(_LAG, _LAG_TIME, _KEPT, Column("Committed", TIME, "Last commit to the ledger")),
)
_GROUP = (
    *(Column("Group"), Column("Positions", NUMBER), Column("Verdict", WORD), Column("Source lag", NUMBER)),
    *(Column("Target lag", NUMBER), Column("Committed", TIME, "Last offset commit on the target")),
)
_INCIDENT = (
    *(Column("At", TIME), Column("Kind", WORD), Column("Topic"), Column("Partition", NUMBER)),
    *(Column("From offset", NUMBER), Column("Until offset", NUMBER), Column("Reason")),
)
_VERIFICATION = (
    *(Column("At", TIME), Column("Verdict", WORD), Column("Topics", NUMBER), Column("Differing", NUMBER)),
    *(Column("Records", NUMBER), Column("Scope"), Column("First difference")),
)
_RUN = (
    *(Column("Started", TIME), Column("Ended", TIME), Column("Duration", NUMBER), Column("Records", NUMBER)),
    *(Column("Bytes", NUMBER), Column("Driver"), Column("Outcome")),
)
_SETTING = (Column("Key"), Column("Value"), Column("Default"), Column("Where"))
Found = TypeVar("Found")


class _Section:
    """One flow: `markup`, and the `tables` in it."""

    def __init__(self, number: int, flow: FlowReport, now: float) -> None:
        self._number, self._flow, self._now = number, flow, now
        self.tables: List[Table] = []
        status, history = flow.status, flow.history
        self.markup = tag(
            "section",
            tag("h2", status.flow, " ", _badge(status.state)),
            _facts(flow, now),
            tag("h3", "Throughput and lag"),
            self._of_table(history.runs, lambda runs: charts(runs, now)),
            tag("h3", "Topics"),
            self._topics(),
            tag("h3", "Consumer groups"),
            self._groups(),
            tag("h3", "Incidents of 30 days"),
            self._of_table(history.incidents, self._incidents),
            tag("h3", "Verifications"),
            self._of_table(history.verifications, self._verifications),
            tag("h3", "Runs of 30 days"),
            self._of_table(history.runs, self._runs),
            tag("h3", "Settings"),
            self._settings(),
            id=f"flow-{number}",
        )

    def _of_table(self, found: Optional[Found], shown: Callable[[Found], Markup]) -> Markup:
        return _missing(self._flow.history.unread) if found is None else shown(found)

    def _table(self, what: str, noun: str, columns: Tuple[Column, ...], rows: Sequence[Row], shown: int = 50) -> Markup:
        given = Table(f"{what}-{self._number}", noun, columns, tuple(rows), shown=shown)
        self.tables.append(given)
        return table(given)

    def _topics(self) -> Markup:
        status = self._flow.status
        if not status.partitions and status.unread:
            return _unread_status()
        blocked = [tag("p", tag("strong", topic), f" is not copied: {reason}") for topic, reason in status.blocked]
        if not status.partitions:
            return join(tag("p", "No topic of the source is copied."), *blocked)
        given = Table(
            *(f"topics-{self._number}", "topic", _TOPIC, tuple(map(_topic_row, topics_of(status.partitions)))),
            inner_columns=_PARTITION,
            inner_noun="partition",
        )
        self.tables.append(given)
        return join(table(given), *blocked)

    def _groups(self) -> Markup:
        status = self._flow.status
        if status.groups:
            return self._table("groups", "group", _GROUP, [_group_row(each) for each in status.groups])
        return _unread_status() if status.unread else tag("p", "No group was translated.")

    def _incidents(self, incidents: Sequence[IncidentStatus]) -> Markup:
        if not incidents:
            return tag("p", "None.")
        latest = incidents[::-1][:INCIDENTS_SHOWN]
        kinds: Dict[str, int] = {}
        for each in incidents:
            kinds[each.kind] = kinds.get(each.kind, 0) + 1
        advice = [_advice(kind, count) for kind, count in sorted(kinds.items())]
        more = len(incidents) - len(latest)
        rest = tag("p", f"{counted(more, 'older incident')}: in the table incidents.", cls="quiet") if more else None
        rows = self._table("incidents", "incident", _INCIDENT, [_incident_row(each) for each in latest], 20)
        return tag("div", tag("dl", *advice, cls="facts"), rows, rest, cls="reason")

    def _verifications(self, found: Sequence[VerificationRecord]) -> Markup:
        if not found:
            return tag("p", prose("Never. `mirror verify CONFIG` compares source and target."))
        rows = [_verification_row(each) for each in found[::-1]]
        return tag("div", self._table("verifications", "verification", _VERIFICATION, rows, 20), cls="reason")

    def _runs(self, runs: Sequence[RunRecord]) -> Markup:
        if not runs:
            return tag("p", "No run in the last 30 days.")
        latest = runs[::-1][:RUNS_SHOWN]
        more = len(runs) - len(latest)
        rest = tag("p", f"{counted(more, 'older run')}: in the table runs.", cls="quiet") if more else None
        rows = [_run_row(each, self._now) for each in latest]
        return tag("div", self._table("runs", "run", _RUN, rows, RUNS_SHOWN), rest, cls="reason")

    def _settings(self) -> Markup:
        flow = self._flow
        clusters = [
            (tag("dt", each.alias), tag("dd", f"{each.bootstrap_servers} ({each.security_protocol})"))
            for each in (flow.source, flow.target)
        ]
        count = unchanged_count(flow.settings)
        text = f"{counted(count, 'other setting')} with the default, see docs/reference/settings.md."
        others = tag("p", text, cls="quiet")
        rows = [Row(tuple(map(Cell, (each.name, each.value, each.default, each.place)))) for each in flow.settings]
        own = self._table("settings", "setting", _SETTING, rows) if rows else None
        return join(tag("dl", *clusters, cls="facts"), own, others)


def _unread_status() -> Markup:
    link = tag("a", "the problems in the overview", href="#problems")
    return tag("ul", tag("li", "Not available: see ", link, ".", cls=UNKNOWN), cls="problems")


def _missing(sentences: Sequence[str]) -> Markup:
    return tag("ul", *(tag("li", "Not available: ", each, cls=UNKNOWN) for each in sentences), cls="problems")


def _facts(flow: FlowReport, now: float) -> Markup:
    status = flow.status
    facts = [("Run", _run_words(flow.history.runs, now)), ("Lag", _lag_words(status))]
    if status.eta_seconds is not None:
        facts.append(("To go", f"about {duration(status.eta_seconds)} at the present rate"))
    if status.kept_seconds is not None:
        facts.append(("Retention", f"The source keeps all of that for {_left(status.kept_seconds).text} at least."))
    found = [(tag("dt", name), tag("dd", text)) for name, text in facts]
    if status.problems:
        link = tag("a", f"{counted(len(status.problems), 'problem')}, see the overview", href="#problems")
        found.append((tag("dt", "Problems"), tag("dd", link)))
    return tag("dl", *found, cls="facts")


def _run_words(runs: Optional[Sequence[RunRecord]], now: float) -> str:
    if runs is None:
        return "unknown"
    if not runs:
        return "none in 30 days"
    run = runs[-1]
    where = "" if run.driver is None else f" on {run.driver}"
    end = run.end(now)
    if end in (RUNNING, DIED):
        return f"{end}, started {moment(run.started)}{where}, last sign of life {moment(run.last_sign)}"
    return f"ended {moment(run.last_sign)}{where}: {end}"


def _advice(kind: str, count: int) -> Tuple[Markup, Markup]:
    found = entry(INCIDENT_CODES.get(kind, ""))
    if found is None:
        words = tag("dd", "A newer release wrote it.")
    else:
        words = tag("dd", prose(f"{found.cause} {found.data}".lstrip()), " What to do: ", prose(found.remedy))
    return tag("dt", f"{grouped(count)} × {named(kind)}"), words


def _topic_row(topic: TopicStatus) -> Row:
    own = topic.partitions
    return Row(
        (
            *(Cell(topic.topic), Cell(", ".join(sorted({each.remote_topic for each in own}))), _count(len(own))),
            *(Cell(topic.copied_words, round(topic.copied, 3)), _count(topic.lag)),
            *(_seconds(topic.lag_seconds), _left(topic.kept_seconds)),
            Cell(str(topic.worst.partition), topic.worst.partition) if topic.lag else NONE,
        ),
        tuple(map(_partition_row, own)),
    )


def _partition_row(each: PartitionStatus) -> Row:
    return Row(
        (
            *(Cell(f"{each.topic}-{each.partition}"), _count(each.log_start), _count(each.position)),
            *(_count(each.log_end), _count(each.lag), _seconds(each.lag_seconds), _left(each.kept_seconds)),
            _at(each.copied_at),
        )
    )


def _group_row(each: GroupStatus) -> Row:
    mark = HEALTHY if each.verdict.startswith("exact") else ""
    return Row(
        (
            *(Cell(each.group), _count(each.positions), Cell(each.verdict, mark=mark)),
            *(_count(each.source_lag), _count(each.target_lag), _at(each.moved_at)),
        )
    )


def _incident_row(each: IncidentStatus) -> Row:
    return Row(
        (
            *(_at(each.at), Cell(each.kind), Cell(each.topic), _number(each.partition)),
            *(_number(each.from_offset), _number(each.until_offset), Cell(each.reason)),
        )
    )


def _verification_row(each: VerificationRecord) -> Row:
    return Row(
        (
            *(_at(each.at), Cell(each.verdict, mark=HEALTHY if each.verdict == "equal" else DEGRADED)),
            *(_count(each.topics), _count(each.differing), _count(each.records), Cell(each.scope)),
            Cell(each.first_difference or "-"),
        )
    )


def _run_row(each: RunRecord, now: float) -> Row:
    end = each.end(now)
    mark = "" if each.went_well(now) else DEGRADED
    text = "no end, no sign of life since" if end == DIED else end
    outcome = f"{text} {moment(each.last_sign)}" if end == DIED else text
    seconds = (now if end == RUNNING else each.last_sign) - each.started
    return Row(
        (
            *(_at(each.started), _at(each.ended), _seconds(seconds), _count(each.records)),
            *(Cell(size(each.bytes), each.bytes), Cell(each.driver or "-"), Cell(outcome, mark=mark)),
        )
    )


def _count(number: Optional[int]) -> Cell:
    return NONE if number is None else Cell(grouped(number), number)


def _number(number: int) -> Cell:
    """A partition or an offset; -1 is unknown."""
    return NONE if number < 0 else _count(number)


def _seconds(seconds: Optional[float]) -> Cell:
    return NONE if seconds is None else Cell(duration(seconds), round(seconds, 3))


def _left(seconds: Optional[float]) -> Cell:
    return NONE if seconds is None else Cell(duration(max(0.0, seconds)), round(seconds, 3))


def _at(at: Optional[float]) -> Cell:
    return NONE if at is None else Cell(moment(at), round(at, 3))


def _files(report: MirrorReport) -> Markup:
    rows = [tag("tr", tag("td", each.path), tag("td", tag("code", each.sha256))) for each in report.files]
    head = tag("tr", *(tag("th", title, scope="col", cls="text") for title in ("File", "SHA-256")))
    facts = (("Name", report.name), ("State folder", report.state), ("Trigger", report.trigger))
    return tag(
        "section",
        tag("h2", "Configuration"),
        tag("dl", *((tag("dt", name), tag("dd", text)) for name, text in facts), cls="facts"),
        tag("table", tag("thead", head), tag("tbody", *rows)),
        tag("p", prose("`sha256sum FILE` prints the same digits for an unchanged file."), cls="quiet"),
        id="configuration",
    )


def _signatures() -> Markup:
    lines = [tag("p", text) for text in ("Made by, date", "Checked by, date")]
    return tag("section", tag("h2", "Signatures"), tag("div", *lines, cls="signatures"), id="signatures")

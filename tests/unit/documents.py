"""Every document of `--json`, and the JSON log line, made by the functions that print them, with small values.

`documents` is by the heading of docs/reference/json.md. A heading has several samples where a key may be null.
"""

from __future__ import annotations

import argparse
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from functools import partial
from io import StringIO
from typing import Any, Callable, Dict, List

from mirror_lib.commands import (
    cutover,
    groups,
    report,
    run,
    takeover,
    verify,
)
from mirror_lib.commands.output import error_json
from mirror_lib.config.record_change import RecordChange
from mirror_lib.control.service import ControlReport, control_json
from mirror_lib.cutover.failover import Failover, RemoteTopic
from mirror_lib.cutover.gates import Readiness
from mirror_lib.doctor.checks import Check
from mirror_lib.errors import MirrorError, RefusedError
from mirror_lib.facts import AclBinding, CommittedOffset
from mirror_lib.groups.decisions import Outcome
from mirror_lib.groups.flow import cycle_json
from mirror_lib.ledger.records import NO_PARTITION, CutoverStep, LeftOut, PartitionKey
from mirror_lib.ledger.runs import OpenRun
from mirror_lib.log_lines import json_line
from mirror_lib.metrics import metrics_json
from mirror_lib.plan.deciding import decided_group, decided_topic
from mirror_lib.plan.preview import engine_plan, preview
from mirror_lib.plan.render import preview_json
from mirror_lib.progress import Outage, outage_json
from mirror_lib.replication.totals import FlowOutcome, TopicTotal
from mirror_lib.status.facts import CutoverStatus, GroupStatus, Problem
from mirror_lib.takeover.verdicts import KNOWN, PartitionTakeover, Verdict, decide
from mirror_lib.text import as_json, document_of
from mirror_lib.topics.matchless import Matchless
from mirror_lib.verify.verdicts import Difference, PartitionVerdict, TopicVerdict, VerifyReport
from tests.unit.test_group_decisions import EMPTY, THERE, decided
from tests.unit.test_preview import FakeCluster, example, flow, topics
from tests.unit.test_progress import COPYING
from tests.unit.test_rollback_plan import move, undo
from tests.unit.test_status import DIED, DIFFERS, FLOW, HANGING, RUN, SKIPPED, sized
from tests.unit.test_takeover import Copied, source_of
from tests.unit.test_timers_and_passes import QUIET

Document = Dict[str, Any]
ERROR = RefusedError("A->B: no", "do this", code="MIR-304")
JSON = argparse.Namespace(json="-", config=["mirror.yaml"], if_running="exit", run="run-1", execute=True)
FLOW_AB = flow()


def printed(*shows: Callable[[], object]) -> List[Document]:
    """The documents that `shows` print."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()):
        for show in shows:
            show()
    return [json.loads(line) for line in out.getvalue().splitlines()]


def documents() -> Dict[str, List[Document]]:
    """By heading. Values are as in JSON."""
    made: Dict[str, List[Document]] = {
        "mirror run: a cycle": [metrics_json(COPYING), metrics_json(replace(COPYING, behind_seconds=None))],
        "mirror run: an outage": [
            outage_json(Outage("A->B", "source", 1.5)),
            outage_json(Outage("A->B", "a", 1.5, 2.5)),
        ],
        "mirror run: topic configs, ACLs, heartbeats": [control_json(ControlReport("A->B"))],
        "mirror run: the end of a flow": [*_ends(), {"flow": "A->B", **error_json([ERROR])}],
        "mirror run --if-running exit": _already_running(),
        "mirror translate: a cycle": [cycle_json(QUIET)],
        "mirror status": _status(),
        "mirror report": [report.document("report.html", "5e88", 9, {"A->B": "healthy"})],
        "mirror doctor": [asdict(Check("A", "login", "ok", "3 brokers"))],
        "mirror plan": _plans(),
        "mirror plan --topic, --group": [
            *(decided_topic(example(), name, ()).document() for name in ("orders", "B.orders")),
            decided_group(replace(example(), groups=None, silent={"groups": "off"}), "billing").document(),
        ],
        "mirror verify": _verified(),
        "mirror groups plan": _groups_planned(),
        "mirror groups rollback": _rolled_back(),
        "mirror cutover run": [cutover.step_document(CutoverStep("A->B", "id", "over", "check", "done", "text"))],
        "mirror cutover plan": [
            document_of(Readiness("A->B", (Check("A->B", "run", "ok", "none"),), 1, rate, 5))
            for rate in (None, 1.5)
        ],
        "mirror failover": _failovers(),
        "mirror takeover": _takeovers(),
        "Log lines": [
            json.loads(json_line("ERROR", "A->B: no", "MIR-304", trace="Traceback")),
            json.loads(json_line("INFO", "no flow")),
        ],
    }
    found: Dict[str, List[Document]] = json.loads(as_json(made))
    return found


def _ends() -> List[Document]:
    total = TopicTotal("orders", "A.orders", 1, 2, 3, 0.5)
    whole, failed = (FlowOutcome("A->B", 2, 3, (total,), error, filtered=1) for error in (None, MirrorError("no")))
    return printed(partial(_end, whole), partial(_end, failed))


def _end(outcome: FlowOutcome) -> None:
    errors = [] if outcome.error is None else [outcome.error]
    run._show([outcome], {"A->B": errors}, JSON, False, False)


class _Runs:
    def other_runs(self, *_: object) -> List[OpenRun]:
        return [OpenRun("A->B", "run-1", 1.5, 2.5, driver) for driver in (None, "another-host process 7")]


def _already_running() -> List[Document]:
    runs: Any = _Runs()
    here = printed(lambda: run._left_to(7, FLOW_AB, JSON))
    return [*here, *printed(lambda: run._other_runs(runs, [FLOW_AB], True))]


def _status() -> List[Document]:
    full = replace(
        FLOW,
        run=replace(RUN, ended=2.5, outcome="ok", driver="host process 7", records_per_second=None),
        partitions=(sized(round((FLOW.at - 3600) * 1000), 1000), replace(sized(None, 1000), position=None)),
        groups=(GroupStatus("g", 1, "exact", 1, 2, 1.5), GroupStatus("g", 1, "exact", None, None, None)),
        incidents=(SKIPPED,),
        verifications=(DIFFERS,),
        blocked={"audit": "no remote name"},
        matchless=(Matchless("topics", "mirror.yaml:7", "no topic of primary matches `ordrs`"),),
        unread=("cannot reach the cluster A",),
        transactions=(HANGING,),
        cutover=CutoverStatus("over", "check", True, 1.5),
    )
    kept = replace(full.partitions[0], kept_seconds=5.5, copied_at=1.5)
    equal = replace(DIFFERS, first_difference=None)
    small = replace(kept, size_limit=None, kept_bytes=None)
    alive = replace(full, run=RUN, partitions=(kept, small), verifications=(equal,))
    return [document_of(each) for each in (full, alive, replace(FLOW, run=None), replace(FLOW, run=DIED))]


def _plans() -> List[Document]:
    source: Any = FakeCluster("A", topics(orders=4))
    target: Any = FakeCluster("B", {})
    changing = flow(
        change=RecordChange(where="true", dead_letter_topic="dead"), max_bytes_per_second=5
    )
    rows = preview(changing, source, target, engine=engine_plan(changing))
    found = example()
    assert found.acls is not None
    acls = replace(found.acls, delete=(AclBinding(*vars(found.acls.create[0]).values()),))
    soon = (Problem("retention", "soon", "keep them"),)
    refused = replace(found, refusal=ERROR, warning="weaker", problems=soon, acls=acls)
    (config,) = (each for each in (found.configs or {})["A.there"] if each.key == "retention.ms")
    deleted = replace(config, action="delete", remote_value=None, source_value=None)
    refused = replace(refused, configs={"A.there": (config, deleted)})
    bare = replace(found, configs=None, acls=None, groups=None, internal=None, silent={"configs": "off"})
    return [preview_json(each) for each in (refused, rows, bare)]


def _verified() -> List[Document]:
    difference = Difference(0, "lost", 4, 5, 1, "gone")
    partitions = (
        PartitionVerdict(0, 5, "differs", difference, ("2 copied records expired",), left_out=LeftOut(1, ((5, 6),))),
        PartitionVerdict(1, 5, "differs", replace(difference, upstream_offset=None, downstream_offset=None)),
    )
    made = []
    for not_copied in (None, 3):
        own = tuple(replace(each, not_copied=not_copied) for each in partitions)
        made.append(verify.document(VerifyReport("A->B", (TopicVerdict("orders", "A.orders", own),)), 1))
    return made


def _groups_planned() -> List[Document]:
    full = decided()
    unknown = replace(full.translation, new_offset=None, reread=None)
    there = decided(present={"billing": {THERE: CommittedOffset(60)}}, groups={"billing": EMPTY})
    nowhere = replace(full, there=(THERE[0], NO_PARTITION), translation=replace(unknown, verdict="repartitioned"))
    moves = [Outcome(each, "commit") for each in (full, there, replace(full, translation=unknown), nowhere)]
    planned = groups._Planned(moves, ["group g: no answer"], None)
    shown = (planned, planned._replace(run_id="run-1"))
    return printed(*(partial(groups._show, JSON, FLOW_AB, "to downstream", each, 1) for each in shown))


def _rolled_back() -> List[Document]:
    undos = [undo([move(5, 10)], 10), undo([move(5, 10)], None)]
    shown = [groups._Undone(undos, 0, run_id) for run_id in (None, "run-2")]
    return printed(*(partial(groups._show_undone, JSON, "A->B", "B", each) for each in shown))


def _failovers() -> List[Document]:
    moved = tuple(GroupStatus("g", 1, "exact", None, lag, 1.5) for lag in (None, 1))
    topic = RemoteTopic("orders", "A.orders", 5, 1.5, True)
    return [document_of(Failover("A->B", 1.5, seen, lag, (topic,), moved)) for seen, lag in ((None, None), (1.5, 1))]


def _takeovers() -> List[Document]:
    case = Copied(source_of(40), [(0, 20), (12, 31)])
    key = PartitionKey("s", "r", "orders", 0)
    rows = [
        PartitionTakeover(key, "east.orders", "kept", kept, verdict)
        for kept, verdict in ((25, decide(case.known(25), case)), (None, Verdict(KNOWN)))
    ]
    return [takeover.document("A->B", "run-1", rows), takeover.document("A->B", None, [], [ERROR])]

"""`mirror repair`: take positions out of the ledger that pass records which were never copied."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import chosen_flows, print_json, print_lines
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.kafka.connection import LogClient
    from mirror_lib.ledger.suspect_positions import SuspectPosition

READ_SECONDS = 60.0
RIGHT, WRONG, LOST, UNKNOWN = "right", "wrong", "records lost", "unknown"
MEANING = {
    WRONG: "No record is lost: without this row the next run resumes where the copy ended.",
    LOST: "Later records were copied since, so these records are missing. Delete the remote topic and run again.",
    UNKNOWN: "The source no longer holds these offsets, so the ledger cannot be judged. Run `mirror verify`.",
}


class _Judged(NamedTuple):
    suspect: SuspectPosition
    verdict: str


def add(commands: Commands) -> None:
    """`mirror repair` and its options."""
    text = "show positions of the ledger that pass records not copied"
    repair = add_command(commands, "repair", repair_command, text)
    repair.add_argument("--execute", action="store_true", help="remove them; stop the flow first")


def repair_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror repair`: show wrong positions, and remove them with `--execute`. 1 where records are lost or unknown."""
    from mirror_lib.spark.session import running_session

    flows = chosen_flows(arguments, config)
    with running_session("mirror repair") as spark:
        done = [_repair(arguments, config, flow, spark) for flow in flows]
    return EXIT_OK if all(done) else EXIT_FAILED


def _repair(arguments: argparse.Namespace, config: MirrorConfig, flow: ReplicationFlow, spark: SparkSession) -> bool:
    from mirror_lib.ledger.suspect_positions import SuspectPositions

    positions = SuspectPositions(spark, config.state)
    # A flow that changes records passes those that it filters, and was never subject to the defect.
    suspects = [] if flow.change is not None else positions.of(flow.name)
    judged = [each for each in _judged(flow, suspects) if each.verdict != RIGHT]
    wrong = [each.suspect for each in judged if each.verdict == WRONG]
    if arguments.execute:
        positions.remove(flow.name, wrong)
    action = ("removed" if arguments.execute else "would be removed") if wrong else "nothing to remove"
    if arguments.json:
        documents = [_document(each) for each in judged]
        print_json({"flow": flow.name, "executed": arguments.execute, "positions": documents})
    else:
        print_lines([*(_line(each) for each in judged), f"{flow.name}: {len(wrong)} wrong positions: {action}"])
    return len(wrong) == len(judged)


def _judged(flow: ReplicationFlow, suspects: List[SuspectPosition]) -> List[_Judged]:
    from mirror_lib.kafka.admin_client import log_client

    asked = [each for each in suspects if not (each.contradicted or each.explained)]
    found = {}
    if asked:
        deadline = time.monotonic() + READ_SECONDS
        with log_client(flow.source, "consumer", deadline) as client:
            client.refresh_leaders_of({(each.key.source_topic, each.key.partition) for each in asked}, deadline)
            found = {each: _verdict(flow, each, client) for each in asked}
    return [_Judged(each, found.get(each, WRONG if each.contradicted else RIGHT)) for each in suspects]


def _verdict(flow: ReplicationFlow, suspect: SuspectPosition, client: LogClient) -> str:
    """Whether the source has a record among the offsets that the position passes."""
    from mirror_lib.kafka.fetcher import ISOLATION
    from mirror_lib.kafka.log_reader import log_entries
    from mirror_lib.kafka.reencoder import last_offset

    key, until = suspect.key, suspect.position.upstream_offset
    isolation = ISOLATION[flow.isolation_level]
    log = log_entries(client, (key.source_topic, key.partition), suspect.copied_until, isolation)
    if log.begin() > suspect.copied_until:
        return UNKNOWN
    for raw, header, is_data in log:
        first = last_offset(raw) if header is None else header.base_offset
        if first >= until:
            break
        if is_data:
            return LOST if suspect.copied_past else WRONG
    return RIGHT


def _line(judged: _Judged) -> str:
    suspect = judged.suspect
    place = f"{suspect.key.source_topic}-{suspect.key.partition}"
    passed = f"offsets {suspect.copied_until:,} to {suspect.position.upstream_offset - 1:,}"
    return f"{place}: {judged.verdict}: a position of the ledger passes {passed}. {MEANING[judged.verdict]}"


def _document(judged: _Judged) -> Dict[str, Any]:
    suspect = judged.suspect
    return {
        "topic": suspect.key.source_topic,
        "partition": suspect.key.partition,
        "copied_until": suspect.copied_until,
        "upstream_offset": suspect.position.upstream_offset,
        "downstream_offset": suspect.position.downstream_offset,
        "verdict": judged.verdict,
    }

"""The codes of errors, refusals and incidents, and the entry of each, for `mirror help CODE` and docs/fix/codes.md.

A code is given once. It never gets another meaning, and the code of an entry that was removed is not given again:
scripts, alerts and tickets name it. The hundreds are groups: `GROUPS` has their titles. Pure.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.ledger.records import (
    COPIED_AGAIN,
    DATA_LOST,
    GROUP_LOST_RECORDS,
    OFFSETS_SKIPPED,
    PARTITION_STOPPED,
    PARTITIONS_ADDED,
    REMOTE_LOG_HEALED,
    STARTED_LATER,
    TOPIC_ADDED,
    TOPIC_RECREATED,
)

PREFIX = "MIR-"


@dataclass(frozen=True)
class Entry:
    """One code. `happened`: what the mirror found. `data`: which records are copied, missing or unchanged. `do`: what
    the operator does next. Each is one to three sentences, in Markdown without links."""

    code: str
    title: str
    happened: str
    data: str
    do: str


GROUPS: Mapping[str, str] = {
    "1": "Configuration and command line",
    "2": "Clusters and records",
    "3": "Refusals: exit code 3",
    "4": "State tables",
    "5": "Spark and the process",
    "6": "Incidents: rows of the table `incidents`",
}

_NOTHING_COPIED = "No record was copied, and nothing was changed."
_STOPS = "The copy is exact up to the position in the ledger. The mirror writes nothing more to the partition."
_RESUMES = "No record is lost. The next run finds the last written record and resumes after it."

ENTRIES: Tuple[Entry, ...] = (
    Entry(
        "MIR-101",
        "The configuration or the command line is wrong",
        "A file, an option, an environment variable or a Python package is missing or has a value that the mirror does"
        " not accept.",
        _NOTHING_COPIED,
        "Correct the place that the message names. `mirror doctor CONFIG` checks the whole file.",
    ),
    Entry(
        "MIR-102",
        "A custom class failed",
        "A replication policy or a filter of the user raised an exception or returned a value of another type.",
        _RESUMES,
        "Correct the class, or remove its key from the configuration, and start the flow again.",
    ),
    Entry(
        "MIR-201",
        "A cluster did not answer or refused a request",
        "No broker answered in time, or a broker answered with an error.",
        _RESUMES,
        "Check `bootstrap.servers`, the network and the brokers. `mirror doctor CONFIG` tries each broker.",
    ),
    Entry(
        "MIR-202",
        "A cluster refused the login",
        "A broker refused the user, the password, the token or the certificate, or the listener has another protocol.",
        _RESUMES,
        "Correct the `sasl.*`, `ssl.*` and `security.protocol` keys of the cluster that the message names.",
    ),
    Entry(
        "MIR-203",
        "A permission is missing",
        "The cluster knows the principal of the mirror but denies it the operation that the message names.",
        _RESUMES,
        "Grant the ACL that the message names. `mirror doctor CONFIG` lists all missing permissions.",
    ),
    Entry(
        "MIR-204",
        "A record batch cannot be copied",
        "A record batch on the source is corrupt, or is of a kind that the mirror cannot write.",
        "The records before it are copied. The partition stops at this batch.",
        "Read the offset in the message. Check the batch on the source with kafka-dump-log.sh.",
    ),
    Entry(
        "MIR-205",
        "A partition or a topic was not copied",
        "The target refused a record batch, or a remote topic cannot be created, lacks partitions or an ACL.",
        "The partition is copied up to the offset in the message. Other partitions and topics are copied.",
        "Follow the message: raise `max.message.bytes`, grant an ACL or add partitions. `mirror plan CONFIG`"
        " lists blocked topics.",
    ),
    Entry(
        "MIR-206",
        "The change of a flow fails on a record",
        "`where`, `transform` or `partitioner` failed on a record, or the dead-letter topic refused a record.",
        "The records before it are copied. The record is not.",
        "Set a `dead.letter.topic`, skip such records with `on.error: skip`, or correct the expression.",
    ),
    Entry(
        "MIR-207",
        "The remote log was truncated during a run",
        "The target lost records that it had acknowledged, for example by the election of an unclean leader.",
        "The lost records are missing on the target until the next start copies them from the source.",
        "Start the flow again. Find the cause of the truncation.",
    ),
    Entry(
        "MIR-210",
        "A partition has no leader",
        "A partition of the source, or its remote partition, has no leader. No broker answers with its offsets.",
        "The partition is copied up to the position in the ledger. Other partitions are copied.",
        "Start the brokers that have its replicas. A continuous run then copies it; start a bounded run again.",
    ),
    Entry(
        "MIR-300",
        "A partition stopped for safety",
        "A partition cannot continue without the risk of lost or duplicate records. The message has the reason.",
        _STOPS,
        "Read the reason in the message or in the table `incidents`. `mirror status CONFIG` shows both.",
    ),
    Entry(
        "MIR-301",
        "Another process copies the flow",
        "A run of the same flow is active on this machine or on another one, or `commit.source.group` has members. This"
        " command needs the flow for itself.",
        "This command copied and changed nothing. The other run continues.",
        "Stop the other run, or give `--if-running wait` or `--take-over` where the command has that option. A killed"
        " run can count as active for ten minutes.",
    ),
    Entry(
        "MIR-302",
        "Another driver fenced this one",
        "Another driver of the same flow started and fenced the producers of this driver.",
        "No record is lost or duplicated. The other driver copies.",
        "Run one driver for each flow. Two mirrors that are meant to run need different values of `name`.",
    ),
    Entry(
        "MIR-303",
        "Source and target are the same cluster",
        "Both sides of the flow have the same cluster id, and a topic would be copied onto itself.",
        _NOTHING_COPIED,
        "Check `bootstrap.servers` of both clusters.",
    ),
    Entry(
        "MIR-304",
        "A cluster has another id than the ledger",
        "The ledger in the state folder was written for a cluster with another id.",
        "No record was copied. Offsets of the recorded cluster mean nothing on this one.",
        "Check `bootstrap.servers`. For a cluster that was replaced give another `state` or another alias.",
    ),
    Entry(
        "MIR-305",
        "The target cannot fence",
        "The brokers of the target are older than Kafka 2.5, or do not accept the requests of Kafka's transactions. The"
        " flow asks for the protection that needs them.",
        "Nothing was written to the target.",
        "Upgrade the target, or set `delivery: at-least-once` and run one driver only. A crash may then duplicate"
        " records.",
    ),
    Entry(
        "MIR-306",
        "Spark's speculation is on",
        "`spark.speculation` is true. Spark would run two attempts of a task at the same time.",
        _NOTHING_COPIED,
        "Set `spark.speculation` to false.",
    ),
    Entry(
        "MIR-307",
        "The Python of the executors does not fit",
        "The executors have no usable Python, another version, or not the packages that the mirror needs.",
        _NOTHING_COPIED,
        "Start the job with spark-submit.sh, or install the same packages on the driver and on every executor.",
    ),
    Entry(
        "MIR-308",
        "An executor cannot reach a cluster",
        "The driver reaches the brokers, and an executor does not.",
        _NOTHING_COPIED,
        "Open the network, the name resolution and the files of the login for every host that the message names.",
    ),
    Entry(
        "MIR-309",
        "The state folder cannot be written",
        "The driver or an executor cannot write to the folder of `state`, or does not see the same folder.",
        _NOTHING_COPIED,
        "Grant write access. On several machines name a folder on shared storage as `state`.",
    ),
    Entry(
        "MIR-310",
        "The source deleted records before they were copied",
        "The log of the source starts after the next offset to copy. Retention or DeleteRecords removed the records.",
        "Records in the range that the message names are missing on the target. The partition stops before the range.",
        "Set `on.data.loss: continue` to resume after the gap. Raise the retention of the source. Kafka Streams deletes"
        " records of its repartition topics: add `.*-repartition` to `topics.exclude`.",
    ),
    Entry(
        "MIR-311",
        "The log of the source was truncated",
        "The log of the source ends before an offset that was copied, or before the configured start.",
        "The target may hold records that the source lost. The source assigns their offsets to new records.",
        "Find out whether the election of an unclean leader or a restored backup is the cause. Set"
        " `on.data.loss: continue` to resume at the end of the source.",
    ),
    Entry(
        "MIR-312",
        "The remote log was truncated",
        "The log of the target ends before an offset that the target had acknowledged.",
        "The records after the end are missing on the target. The source may still have them.",
        "Start the flow again: it copies from the source what is still there. Where the message says that the ledger"
        " lacks a range, set `on.data.loss: continue` or give the flow an empty remote topic.",
    ),
    Entry(
        "MIR-313",
        "The remote topic has records of another writer",
        "A record on the remote topic is not the copy of the next record of the source.",
        "The mirror writes nothing more to the partition, and the foreign record stays. If the other writer copied from"
        " the same source, records may be on the remote topic twice.",
        "Find the other writer, such as a MirrorMaker. Stop it or revoke its Write permission. Then give the flow an"
        " empty remote topic. Until then each run is refused again.",
    ),
    Entry(
        "MIR-314",
        "Compaction removed the proof of the copied records",
        "An interrupted run wrote records. Compaction removed the records that would show which ones.",
        _STOPS,
        "Give the flow an empty remote topic.",
    ),
    Entry(
        "MIR-315",
        "Retention removed what an interrupted run wrote",
        "An interrupted run wrote records after the position in the ledger. The remote log or the source no longer has"
        " them.",
        f"{_STOPS} It is unknown which records after the position were copied.",
        "Give the flow an empty remote topic. For a shared remote topic set `on.data.loss: continue`: the records of"
        " that run are copied again.",
    ),
    Entry(
        "MIR-316",
        "A topic was deleted and created again",
        "A topic has a name from the ledger but another id. Its offsets start again.",
        "The records of the old topic stay on the target. No record of the new topic was copied.",
        "Set `on.data.loss: continue` to append the records of the new topic. A flow that repartitions needs another"
        " `name`, `state` and remote topic.",
    ),
    Entry(
        "MIR-317",
        "A flow changed what it makes of its records",
        "`partitioner`, `rename` or `transform` changed. A remote topic would mix two partitioning modes, or would lack"
        " earlier records.",
        "Nothing was copied with the changed configuration.",
        "Set the keys back. To copy with the changed keys, give another `name`, `state` and an empty remote topic.",
    ),
    Entry(
        "MIR-318",
        "The change of a flow cannot be repeated",
        "`partitioner` or `transform` chooses partitions by a value that differs at each run. Or `transform` changes"
        " the order, or makes several records of one.",
        _STOPS,
        "Compute partitions from fields of the record. Let `transform` keep the order, and make one record of each.",
    ),
    Entry(
        "MIR-319",
        "A flow that repartitions has a setting that it cannot have",
        "The flow repartitions its records, and another key asks for what such a flow cannot do.",
        _NOTHING_COPIED,
        "Remove the key that the message names, or set `partitioner` back.",
    ),
    Entry(
        "MIR-321",
        "A newer release wrote a state table",
        "A table under `state` has a schema version that this release cannot read.",
        "Nothing was read or written there.",
        "Run the release that wrote the table or a newer one, or name another folder as `state`.",
    ),
    Entry(
        "MIR-322",
        "A state table has foreign columns",
        "The columns of a table under `state` match no release of the mirror.",
        "Nothing was read or written there.",
        "Restore an earlier version of the table, or name another folder as `state`.",
    ),
    Entry(
        "MIR-324",
        "An earlier release copied the flow",
        "The progress of the flow is in a table that this release does not read.",
        _NOTHING_COPIED,
        "Give the mirror another `name` and `state`, and the flow an empty remote topic.",
    ),
    Entry(
        "MIR-329",
        "The remote log has records and the ledger has no rows of them",
        "The remote log has held records, and the ledger in the state folder that the message names has no rows of the"
        " partition. Both logs do not prove which source records were copied.",
        "Nothing was appended to the partition. Its records on both clusters are unchanged.",
        "Set `state` to the folder of the earlier runs. For the records of a MirrorMaker run `mirror takeover`. To"
        " resume at an offset that you know, set `start.position` to offsets. To copy all again, delete the remote"
        " topic.",
    ),
    Entry(
        "MIR-330",
        "Producers or consumers are still active",
        "A cut-over or a cut-back found a producer or a consumer that has not stopped, or was itself interrupted.",
        "Records that were written meanwhile are on one cluster only. This step changed no offset of a group.",
        "Stop the clients that the message names. Call the command again: it resumes at this step.",
    ),
    Entry(
        "MIR-331",
        "A cut-over cannot fence the source",
        "The source has no authorizer, or the principal of the mirror may not change its ACLs.",
        "No group was moved. Producers can still write to the source.",
        "Grant Alter on the cluster, or stop the producers yourself and omit `--fence-source`.",
    ),
    Entry(
        "MIR-332",
        "A cut-over found an incomplete copy",
        "A partition has no leader, has records that are not copied, or differs from its source.",
        "No offset of a group was changed.",
        "Let the copy finish. `mirror verify CONFIG` shows the difference. Then call the command again.",
    ),
    Entry(
        "MIR-333",
        "There is no cut-over to reverse",
        "The table `cutovers` has no complete cut-over of the flow.",
        "Nothing was changed.",
        "Call `mirror cutover run CONFIG` first, or check `state` and `--flow`.",
    ),
    Entry(
        "MIR-334",
        "A state table is gone",
        "The folder of a table that this run has read or written was deleted or moved, or its file system was"
        " unmounted. The run has ended, and creates no other table in its place.",
        "No record on the target is lost. Records that were copied since the last commit are not in a ledger.",
        "Put the folder back and start again. If it is lost, start again without it: the run reads the remote topics"
        " from their start to find the copied records. Then `mirror verify CONFIG`.",
    ),
    Entry(
        "MIR-335",
        "A cut-over left offsets of groups uncommitted",
        "The step `groups` may not commit every offset: a group has consumers there, or it has no membership and"
        " another client committed its offset, or its offset cannot be translated.",
        "The offsets that could be committed are committed. The copy is complete.",
        "Stop the consumers of both clusters. For groups without membership set `groups.simple: include` once their"
        " consumers are stopped. Call the command again, or give `--leave-groups`. Groups of a flow that repartitions"
        " records start by time.",
    ),
    Entry(
        "MIR-340",
        "The other tool still runs",
        "Another replication tool may still write to the remote topics: its group has members, its heartbeats arrive,"
        " or log ends or its positions move. For a take-over its state may also be unknown.",
        "Nothing was written. Without this refusal records would be on the remote topics twice.",
        "Stop the other tool and wait for its session timeout. Run `mirror takeover CONFIG --execute`, then `mirror run"
        " CONFIG`. For a take-over grant Describe on its group.",
    ),
    Entry(
        "MIR-341",
        "The positions of the other tool are missing or ambiguous",
        "There is no committed position, a position is not an offset, or two connectors have committed one for"
        " the same partition.",
        "The take-over did not start.",
        "Name the offsets topic, the group or the connector that wrote to the remote topics, by `--from` or"
        " `--connector`.",
    ),
    Entry(
        "MIR-342",
        "The end of the remote log cannot be matched with the source",
        "The records at the end of the remote log do not show where the other tool stopped.",
        "The remote log is unchanged. No position was recorded.",
        "Compare more records with `--compare`, or copy the topic to an empty remote topic.",
    ),
    Entry(
        "MIR-343",
        "The group's offset cannot be committed",
        "The takeover found where a partition resumes. The source refused the offset of the group of the flow.",
        "No record was copied. A process with another ledger would copy the end of the remote log again.",
        "Grant Read on the group, and run the takeover again.",
    ),
    Entry(
        "MIR-350",
        "The copies cannot be compared",
        "The flow's own output cannot be computed again, or the option does not apply to it.",
        "The comparison is missing. The copies are unchanged.",
        "Verify without the option that the message names.",
    ),
    Entry(
        "MIR-351",
        "Positions cannot be translated",
        "Spark's form needs an offset for each partition. A position has none: the flow has not copied so far, or it"
        " repartitions records.",
        "No offset was written.",
        "Let the mirror catch up. Give the positions as CSV to see which of them have offsets.",
    ),
    Entry(
        "MIR-401",
        "A state table cannot be read or written",
        "The storage of `state` did not answer, or a table of it is damaged. The message has the error of Delta.",
        "No record on the target is lost. The next start re-reads the ends of the remote logs.",
        "Check the storage and its permissions. If a table is damaged, stop all runs and move the state folder aside."
        " Then `mirror run CONFIG --once` finds the copied records on the remote topics, and `mirror verify CONFIG`"
        " compares them. Flows with `shared.remote.topics` or `provenance: off` need a backup of the folder instead.",
    ),
    Entry(
        "MIR-402",
        "Another process changed the same table",
        "Delta refused a commit because another process committed to the table at that moment.",
        "Nothing was written by this commit.",
        "Run the command again. Let one driver run each flow.",
    ),
    Entry(
        "MIR-500",
        "The command failed",
        "The mirror could not complete its work. The message has the cause.",
        _RESUMES,
        "Read the message. With `MIRROR_LOG=debug` the log has the trace.",
    ),
    Entry(
        "MIR-501",
        "Spark ended",
        "The Java process or the Spark context is gone.",
        _RESUMES,
        "Read the log of Spark for the cause, often memory. Run the command again.",
    ),
    Entry(
        "MIR-502",
        "Spark gave the ledger no task slot",
        "The commit to the ledger waited for minutes, because other tasks occupied every slot.",
        "The copy is exact. The next run recovers the offset ranges from the remote log.",
        "Give Spark more cores than flows that tail, and run the command again.",
    ),
    Entry(
        "MIR-503",
        "Spark failed",
        "A query or a job of Spark failed. The message has the innermost cause.",
        _RESUMES,
        "Read the cause and the logs of the executors. For lack of memory follow the message. Run the command again.",
    ),
    Entry(
        "MIR-601",
        "Incident: data lost",
        "The source no longer had the records, or the remote log lost what another tool wrote. `on.data.loss` is"
        " `continue`.",
        "The records are missing on the target. The row has their range.",
        "Copy the range from a backup if it is needed.",
    ),
    Entry(
        "MIR-602",
        "Incident: offsets skipped",
        "A record could not be written, and `on.error: skip` excluded it.",
        "The record is missing on the target. The row has its offset.",
        "`mirror verify CONFIG` lists all skipped offsets. Write a record again by hand if it is needed.",
    ),
    Entry(
        "MIR-603",
        "Incident: copied again",
        "Retention removed from a shared remote topic what an interrupted run may have written. `on.data.loss` is"
        " `continue`.",
        "The records are copied again. None is missing.",
        "Nothing. A consumer may read such a record twice.",
    ),
    Entry(
        "MIR-604",
        "Incident: remote log healed",
        "The remote log was truncated.",
        "The missing records were copied again. None is missing.",
        "Find the cause, for example the election of an unclean leader.",
    ),
    Entry(
        "MIR-605",
        "Incident: topic recreated",
        "A topic was deleted and created again.",
        "The mirror copies the topic that exists now. Records of a deleted source topic stay on the target.",
        "Check that the deletion was intended.",
    ),
    Entry(
        "MIR-606",
        "Incident: partition stopped",
        "The target refused a record batch, or another writer wrote to the remote partition.",
        "The records before the offset of the row are copied. Those after it are not.",
        "Read the reason in the row, fix it, and start the flow again.",
    ),
    Entry(
        "MIR-607",
        "Incident: group lost records",
        "A group was moved to the start of a remote log that no longer holds the next records of the group.",
        "The copy is complete. The group does not read the records that retention removed.",
        "The row has the group and its offset on the source. Read the range from the source if it is needed.",
    ),
    Entry(
        "MIR-608",
        "Incident: topic added",
        "The source has a topic that the flow selects and had not copied. The mirror created its remote topic.",
        "The topic is copied as the others are.",
        "Nothing. If the topic is not to be copied, add it to `topics.exclude`.",
    ),
    Entry(
        "MIR-609",
        "Incident: partitions added",
        "A source topic got more partitions. The mirror added as many to its remote topic.",
        "The new partitions are copied from their first offset.",
        "Nothing.",
    ),
    Entry(
        "MIR-610",
        "Incident: copy starts later",
        "The source held records when the copy of a partition began, and `start.position` or"
        " `consumer.auto.offset.reset` starts the copy after them.",
        "These records are not copied. The row has their offsets. A group that had not read them does not get them on"
        " the target.",
        "Nothing, if this is meant. Otherwise remove the key, delete the remote topic, and start the flow again.",
    ),
)

# The code of each kind of incident, which the table `incidents` names by `kind`.
INCIDENT_CODES: Mapping[str, str] = {
    DATA_LOST: "MIR-601",
    OFFSETS_SKIPPED: "MIR-602",
    COPIED_AGAIN: "MIR-603",
    REMOTE_LOG_HEALED: "MIR-604",
    TOPIC_RECREATED: "MIR-605",
    PARTITION_STOPPED: "MIR-606",
    GROUP_LOST_RECORDS: "MIR-607",
    TOPIC_ADDED: "MIR-608",
    PARTITIONS_ADDED: "MIR-609",
    STARTED_LATER: "MIR-610",
}


def entry(word: str) -> Optional[Entry]:
    """The entry of a code, given as `MIR-304`, `mir-304` or `304`; `None` where no entry has it."""
    code = _written_out(word)
    return next((each for each in ENTRIES if each.code == code), None)


def named(kind: str) -> str:
    """A kind of incident with its code; alone where it is one of a newer release."""
    return f"{kind} ({INCIDENT_CODES[kind]})" if kind in INCIDENT_CODES else kind


def nearest(word: str) -> Entry:
    code = _written_out(word)
    return max(ENTRIES, key=lambda each: difflib.SequenceMatcher(None, each.code, code).ratio())


def entry_lines(each: Entry) -> List[str]:
    parts = (("What happened", each.happened), ("The data", each.data), ("What to do", each.do))
    return [f"{each.code}  {each.title}", *(line for name, text in parts for line in ("", f"{name}: {text}"))]


def grouped_entries() -> Iterator[Tuple[str, Sequence[Entry]]]:
    for digit, title in GROUPS.items():
        yield title, [each for each in ENTRIES if each.code.startswith(f"{PREFIX}{digit}")]


def _written_out(word: str) -> str:
    code = word.strip().upper()
    return code if code.startswith(PREFIX) else f"{PREFIX}{code}"

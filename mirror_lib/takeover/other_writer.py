"""Decides whether another replication tool may still write to the remote topics of a flow. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.replication.start_rules import Writer
from mirror_lib.text import counted, some

STOP_IT = (
    "stop that tool, and after a kill wait for its session timeout; then run `mirror takeover CONFIG --execute`, then "
    "`mirror run CONFIG`. For a mirror with another `state` use that folder"
)


@dataclass(frozen=True)
class OtherWriter:
    """Whether another tool writes to the remote partitions that hold records without rows in the ledger, and why.

    The reason is empty if there is no such partition: then nothing was checked. `unknown`: what could not be read.
    """

    state: Writer = Writer.NONE
    reason: str = ""
    unknown: str = ""

    def refusal(self, flow: str) -> Optional[RefusedError]:
        if self.state is not Writer.RUNNING:
            return None
        what = f"{flow}: another tool may still write to the remote topics: {self.reason}. Nothing was written"
        return RefusedError(what, STOP_IT, code="MIR-340")

    def warning(self, flow: str) -> str:
        """What an operator must know of a run that is not refused; empty if nothing was checked."""
        return "; ".join(filter(None, [f"{flow}: {self.reason}" if self.reason else "", self.unknown]))


@dataclass(frozen=True)
class Signs:
    """What two reads of the target show, seconds apart. `None`: this principal cannot read it.

    `partitions`: the remote partitions with records and without rows in the ledger. `hosts`: of the members of `group`,
    the group of MirrorMaker's workers. `heartbeats`: how many of MirrorMaker arrived between the reads. `moved`: the
    partitions of remote topics and of MirrorMaker's own topics whose log end moved. `topics`: MirrorMaker's own topics.
    """

    alias: str
    partitions: int
    group: str
    hosts: Optional[Tuple[str, ...]] = ()
    heartbeats: Optional[int] = 0
    moved: Tuple[str, ...] = ()
    topics: Tuple[str, ...] = ()


def decide(signs: Signs) -> OtherWriter:
    """RUNNING by any sign; an unreadable sign is none, and is named."""
    shown = _shown(signs)
    records = f"{counted(signs.partitions, 'remote partition')} with records that the ledger does not have"
    unknown = _unknown(signs)
    if shown:
        more = f". There are {records}" if signs.partitions else ""
        return OtherWriter(Writer.RUNNING, f"{'; '.join(shown)}{more}", unknown)
    if signs.topics:
        found = f"{records}; MirrorMaker has {some(signs.topics, 1)} on {signs.alias}, and has ended"
        way = "`mirror takeover CONFIG` resumes where it ended; a run compares these records with the source instead"
        return OtherWriter(Writer.ENDED, f"{found}: {way}", unknown)
    alone = "no other tool writes to them now: a run compares them with the source"
    return OtherWriter(Writer.NONE, f"{records}; {alone}", unknown)


def _shown(signs: Signs) -> List[str]:
    found = []
    if signs.hosts:
        found.append(f"group {signs.group} on {signs.alias} has members ({', '.join(signs.hosts)})")
    if signs.heartbeats:
        found.append(f"heartbeats of MirrorMaker arrive on {signs.alias}")
    if signs.moved:
        found.append(f"the log end of {some(signs.moved, 3)} moves")
    return found


def _unknown(signs: Signs) -> str:
    unread: Sequence[str] = [
        *([f"the members of group {signs.group} (grant Describe on it)"] if signs.hosts is None else []),
        *(["MirrorMaker's heartbeats (grant Read on their topic)"] if signs.heartbeats is None else []),
    ]
    return f"cannot read {' and '.join(unread)} on {signs.alias}" if unread else ""

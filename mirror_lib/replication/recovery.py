"""Recovers a partition after an interruption: reads its remote log after the recorded position.

The records found are compared with the source and counted as if they had just been acknowledged.
"""

from __future__ import annotations

from typing import Callable, FrozenSet, Iterator, Optional, Sequence

from mirror_lib.errors import MirrorError, RefusedError
from mirror_lib.kafka.connection import Disconnected, LogClient, name_of
from mirror_lib.kafka.fetcher import READ_UNCOMMITTED, Fetched, required_ends
from mirror_lib.kafka.log_reader import Entry, LogEntries, entries, glances
from mirror_lib.ledger.intervals import Runs
from mirror_lib.ledger.records import COPIED_AGAIN, Position
from mirror_lib.replication.partition import PartitionCopy
from mirror_lib.replication.reconcile import Records, left_the_log, loss_hint, reconcile, settle

Own = Optional[FrozenSet[int]]
MARKER_BYTES = 78
EMPTY_HINT = "give the flow an empty remote topic, or a ledger that knows this one"


class Recovery:
    """Recovers the partitions of one task over the connections that will append. Every call raises `Disconnected` if a
    leader does not answer. `isolation` is the source's."""

    def __init__(self, source: LogClient, target: LogClient, isolation: int, on_data_loss: str) -> None:
        self._source = source
        self._target = target
        self._isolation = isolation
        self._passes_loss = on_data_loss == "continue"

    def recover(self, copies: Sequence[PartitionCopy], own: Callable[[PartitionCopy], Own]) -> None:
        """Move `copies` to the ends of their remote logs, or refuse them. Their lanes must be fenced.

        `own` returns the producer ids whose batches count, if others write to the remote topic too. Raises
        `ClusterError` if a broker refuses. Most remote logs have nothing but a marker, so one short read of all logs
        comes before any is read by itself.
        """
        ends = required_ends(self._target, [copy.remote for copy in copies])
        written = glances(self._target, {copy.remote: copy.downstream for copy in copies}, READ_UNCOMMITTED)
        suspect = [copy for copy in copies if copy.remote in written and len(written[copy.remote].data) > MARKER_BYTES]
        ours = glances(self._source, {copy.source: copy.acknowledged for copy in suspect}, self._isolation)
        for copy in copies:
            take_back = _unchanged(copy)
            try:
                self._recover(copy, own(copy), ends[copy.remote], written.get(copy.remote), ours.get(copy.source))
            except (MirrorError, Disconnected) as error:
                # Records may be equal by chance, as only the rest of the log shows. A copy that resumed from here would
                # not compare the rest any more.
                at = copy.acknowledged
                take_back()
                if not isinstance(error, RefusedError):
                    raise
                unrecorded = copy.task.unrecorded
                reason = f"{error}. {unrecorded}" if unrecorded else str(error)
                copy.refuse(reason, at, code="MIR-329" if unrecorded else error.code)

    def _recover(
        self, copy: PartitionCopy, own: Own, end: int, written: Optional[Fetched], ours: Optional[Fetched]
    ) -> None:
        source = self._source_entries(copy, ours)
        # Nothing to compare, and the driver saw that the source still has the next records: no request to the source.
        if may_hold_records(written) or copy.task.log_start > copy.acknowledged:
            while source.begin() > copy.acknowledged:
                self._settle(copy, source, own, end)
                source, written = self._source_entries(copy), None
        self._compare(copy, own, end, source, self._remote_entries(copy, written))

    def _compare(self, copy: PartitionCopy, own: Own, end: int, source: LogEntries, remote: LogEntries) -> None:
        found, name = copy.recovered, name_of(copy.remote)
        written = Records(_counted(own_entries(up_to(remote, end, name), own), copy), copy.downstream)
        start = Position(copy.acknowledged, copy.downstream)
        for match in reconcile(Records(source, copy.acknowledged), written, name, start, lambda: source.end):
            copy.recover(*match)
        if copy.recovered == found and remote.expired and not (copy.task.shared and self._nothing_to_copy(copy)):
            self._pass_expired(remote, copy)
        copy.downstream = remote.end

    def _nothing_to_copy(self, copy: PartitionCopy) -> bool:
        """Whether the source ends at the copy's position, so that no process can have copied more."""
        ends = required_ends(self._source, [copy.source], self._isolation)
        return ends[copy.source] == copy.acknowledged

    def _pass_expired(self, remote: LogEntries, copy: PartitionCopy) -> None:
        """Skip expired records of a shared topic. Other writers' records push all old records out of it, even if this
        flow had nothing to copy for long. An interrupted attempt's expired copies are gone, so no copy is
        duplicated."""
        if not copy.task.shared:
            raise RefusedError(_expired(remote, copy), EMPTY_HINT, code="MIR-315")
        if not self._passes_loss:
            hint = "set on.data.loss: continue to resume after them, and to copy the records of such an attempt again"
            raise RefusedError(_expired(remote, copy), hint, code="MIR-315")
        copy.lose(copy.acknowledged, -1, f"{_expired(remote, copy)}; that is copied again", COPIED_AGAIN)

    def _settle(self, copy: PartitionCopy, source: LogEntries, own: Own, end: int) -> None:
        """Move `copy` to the start of the source's log, from an offset that the source no longer has."""
        at, log_start, remote = Position(copy.acknowledged, copy.downstream), source.start, self._remote_entries(copy)
        own_log = own_entries(up_to(remote, end, name_of(copy.remote)), own)
        written = Records(_counted(own_log, copy), copy.downstream)
        settled = settle(Records(source, log_start), written, at, log_start, name_of(copy.remote))
        if remote.expired:
            raise RefusedError(_expired(remote, copy), EMPTY_HINT, code="MIR-315")
        if settled.lost_from is not None:
            reason = left_the_log(copy.source, settled.lost_from, log_start)
            if not self._passes_loss:
                raise RefusedError(reason, loss_hint(copy.source[0]), code="MIR-310")
            copy.lose(settled.lost_from, log_start, reason)
        for match in settled.matches:
            copy.recover(*match)
        copy.recover(log_start, remote.end if settled.downstream_offset is None else settled.downstream_offset, 0)

    def _source_entries(self, copy: PartitionCopy, first: Optional[Fetched] = None) -> LogEntries:
        return LogEntries(self._source, copy.source, copy.acknowledged, self._isolation, first)

    def _remote_entries(self, copy: PartitionCopy, first: Optional[Fetched] = None) -> LogEntries:
        return LogEntries(self._target, copy.remote, copy.downstream, READ_UNCOMMITTED, first)


def may_hold_records(found: Optional[Fetched]) -> bool:
    """Whether a short read may have found more than markers. None means that the log had more than fits into it."""
    return found is None or len(found.data) > MARKER_BYTES or any(is_data for _, _, is_data in entries(found))


def _unchanged(copy: PartitionCopy) -> Callable[[], None]:
    """Return a function that undoes what is found from now on."""
    stood, incidents = (copy.acknowledged, copy.downstream, copy.lost), list(copy.incidents)
    syncs, counted = copy.syncs.tobytes(), (copy.recovered, copy.recovered_bytes)

    def take_back() -> None:
        copy.acknowledged, copy.downstream, copy.lost = stood
        copy.incidents = incidents
        copy.syncs = Runs(syncs)
        copy.recovered, copy.recovered_bytes = counted

    return take_back


def up_to(log: LogEntries, end: int, name: str) -> Iterator[Entry]:
    """The entries of `log`. Raises `Disconnected` if the log seems to end before `end`.

    A follower may answer reads too (KIP-392), for example the previous leader, and may lack records. Records that it
    does not show would be copied again.
    """
    yield from log
    if log.end < end:
        raise Disconnected(f"{name} was read up to offset {log.end}, and its leader reports {end}")


def own_entries(log: Iterator[Entry], own: Own) -> Iterator[Entry]:
    """Filter the log of a remote topic that several flows write to: only this lane's batches count as data."""
    for raw, header, is_data in log:
        yield raw, header, is_data and (own is None or (header is not None and header.producer_id in own))


def _counted(log: Iterator[Entry], copy: PartitionCopy) -> Iterator[Entry]:
    for entry in log:
        copy.recovered_bytes += len(entry[0]) if entry[2] else 0
        yield entry


def _expired(remote: LogEntries, copy: PartitionCopy) -> str:
    return (
        f"{name_of(copy.remote)}: retention has removed offsets {copy.downstream} to {remote.start - 1}, which an "
        "interrupted attempt may have written, before they were read"
    )

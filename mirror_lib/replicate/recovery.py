"""Brings a partition to where its two logs are after an interruption: what lies on the remote log behind its position
is read, compared with the source, and entered as if it had just been acknowledged. Or it stops, where the remote log
lost what was acknowledged.
"""

from __future__ import annotations

from functools import partial
from typing import Callable, Collection, FrozenSet, Iterator, Optional, Sequence

from mirror_lib.errors import RefusedError
from mirror_lib.log.connection import LogClient
from mirror_lib.log.fetch import READ_UNCOMMITTED, Fetched
from mirror_lib.log.offsets import log_ends
from mirror_lib.log.tail import LogEntries, LostTail, glances, log_entries
from mirror_lib.log.visible import Entry, entries
from mirror_lib.replicate.log_records import Records
from mirror_lib.replicate.loss import settle
from mirror_lib.replicate.partition import PartitionCopy
from mirror_lib.replicate.ranges import CONTINUE_HINT, left_the_log
from mirror_lib.replicate.reconcile import reconcile
from mirror_lib.state.records import Position

Own = Optional[FrozenSet[int]]
MARKER_BYTES = 78


class Recovery:
    """For the partitions of one task, over the connections that will append. Every call raises `Disconnected` where a
    leader does not answer. `records` counts what was found and not told yet; `isolation` is that of the source."""

    def __init__(self, source: LogClient, target: LogClient, isolation: int, on_data_loss: str) -> None:
        self._source = source
        self._target = target
        self._isolation = isolation
        self._passes_loss = on_data_loss == "continue"
        self.records = 0

    def told(self) -> None:
        """All that was found is the driver's now; from here on it is counted anew."""
        self.records = 0

    def recover(self, copies: Sequence[PartitionCopy], own: Callable[[PartitionCopy], Own]) -> None:
        """Move `copies` to the ends of their remote logs, or refuse them. Their lanes must be fenced.

        `own` tells the producer ids whose batches count, where others write to the remote topic too. Raises
        `ClusterError` where a broker refuses. Most remote logs hold nothing but a marker, so all are glanced at before
        any is read by itself.
        """
        written = glances(self._target, {copy.remote: copy.downstream for copy in copies}, READ_UNCOMMITTED)
        suspect = [copy for copy in copies if copy.remote in written and len(written[copy.remote].data) > MARKER_BYTES]
        ours = glances(self._source, {copy.source: copy.acknowledged for copy in suspect}, self._isolation)
        for copy in copies:
            try:
                self._recover(copy, own(copy), written.get(copy.remote), ours.get(copy.source))
            except RefusedError as error:
                copy.refuse(str(error))

    def _recover(self, copy: PartitionCopy, own: Own, written: Optional[Fetched], ours: Optional[Fetched]) -> None:
        source = self._source_entries(copy, ours)
        # Nothing to compare, and the driver saw that the source still has what comes next: no need to ask it again.
        if may_hold_records(written) or copy.task.log_start > copy.acknowledged:
            while source.begin() > copy.acknowledged:
                self._settle(copy, source, own)
                source, written = self._source_entries(copy), None
        self._compare(copy, own, source, self._remote_entries(copy, written))

    def _compare(self, copy: PartitionCopy, own: Own, source: LogEntries, remote: LogEntries) -> None:
        found, name, written = self.records, _name(copy), Records(own_entries(remote, own), copy.downstream)
        start = Position(copy.acknowledged, copy.downstream)
        ours, lost = Records(source, copy.acknowledged), partial(self._lost, copy)
        for match in reconcile(ours, written, name, start, lambda: source.end, lost):
            copy.recover(match.upstream_offset, match.downstream_offset, match.record_count)
            self.records += match.record_count
        if self.records == found:
            _refuse_expired(remote, copy)
        copy.downstream = remote.end

    def _lost(self, copy: PartitionCopy, on_at: int, reason: str) -> None:
        if not self._passes_loss:
            raise RefusedError(reason, CONTINUE_HINT)
        copy.lose(on_at, on_at, reason)

    def _settle(self, copy: PartitionCopy, source: LogEntries, own: Own) -> None:
        """Move `copy` to the start of the source's log, from an offset that is gone there."""
        at, log_start, remote = Position(copy.acknowledged, copy.downstream), source.start, self._remote_entries(copy)
        written = Records(own_entries(remote, own), copy.downstream)
        settled = settle(Records(source, log_start), written, at, log_start, _name(copy))
        _refuse_expired(remote, copy)
        if settled.lost_from is not None:
            reason = left_the_log(copy.source, settled.lost_from, log_start)
            if not self._passes_loss:
                raise RefusedError(reason, CONTINUE_HINT)
            copy.lose(settled.lost_from, log_start, reason)
        for match in settled.matches:
            copy.recover(match.upstream_offset, match.downstream_offset, match.record_count)
            self.records += match.record_count
        copy.recover(log_start, remote.end if settled.downstream_offset is None else settled.downstream_offset, 0)

    def _source_entries(self, copy: PartitionCopy, first: Optional[Fetched] = None) -> LogEntries:
        return log_entries(self._source, copy.source, copy.acknowledged, self._isolation, first)

    def _remote_entries(self, copy: PartitionCopy, first: Optional[Fetched] = None) -> LogEntries:
        return log_entries(self._target, copy.remote, copy.downstream, READ_UNCOMMITTED, first)


def may_hold_records(found: Optional[Fetched]) -> bool:
    """Whether what a glance found may be more than markers; None is more than it had room for."""
    return found is None or len(found.data) > MARKER_BYTES or any(is_data for _, _, is_data in entries(found))


def own_entries(log: Iterator[Entry], own: Own) -> Iterator[Entry]:
    """In a remote topic that several flows write to, only this lane's batches count as data."""
    for raw, header, is_data in log:
        yield raw, header, is_data and (own is None or (header is not None and header.producer_id in own))


def _refuse_expired(remote: LogEntries, copy: PartitionCopy) -> None:
    if remote.expired:
        raise RefusedError(
            f"{_name(copy)}: retention has removed offsets {copy.downstream} to {remote.start - 1}, which an "
            "interrupted attempt may have written, before they were looked at",
            "give the flow an empty remote topic, or a ledger that knows this one",
        )


def _name(copy: PartitionCopy) -> str:
    return f"{copy.remote[0]}-{copy.remote[1]}"


def stop_at_lost_tails(client: LogClient, copies: Collection[PartitionCopy]) -> None:
    """Stop the partitions whose remote log ends before what was acknowledged. `client` is that of the target.

    In every pass: a broker that lost a log's tail may have forgotten the producer too (it does so by the records'
    timestamps), and would take any sequence at any offset. Raises `Disconnected`.
    """
    ends = log_ends(client, [copy.remote for copy in copies])
    for copy in copies:
        if ends.get(copy.remote, -1) < copy.downstream:
            try:
                next(log_entries(client, copy.remote, copy.downstream, READ_UNCOMMITTED), None)
            except LostTail as error:
                copy.lose_tail(str(error))

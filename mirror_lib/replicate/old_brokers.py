"""What a target's brokers know of producer epochs in; a refusal, or a word of warning, out."""

from __future__ import annotations

import logging

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import RefusedError

log = logging.getLogger(__name__)


def check_brokers(flow: ReplicationFlow, guards_epochs: bool) -> None:
    """Raise `RefusedError` where a flow is to be exact and its target is too old for a fence that two drivers mind;
    warn where the flow has no fence."""
    if guards_epochs:
        return
    old = f"{flow.name}: the brokers of {flow.target.alias} are older than Kafka 2.5"
    if flow.delivery == "exactly-once":
        raise RefusedError(
            f"{old}, where two drivers of one flow could write at once",
            "`delivery: at-least-once` goes without a fence there; then never start a second driver",
        )
    log.warning("%s, on which this mirror is not tested; never start a second driver of this flow", old)

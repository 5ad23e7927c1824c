"""Decides how a flow runs on a target whose brokers cannot fence a second driver: older than Kafka 2.5 (KIP-360), or a
service with Kafka's protocol but without its transactions."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Optional, Sequence

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import RefusedError

log = logging.getLogger(__name__)

AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True)
class SettledFlow:
    """`flow` as it can run on its target. `refusal` says why it cannot; `warning` what its target does not guarantee.
    There is neither where the target's brokers keep two drivers apart."""

    flow: ReplicationFlow
    warning: str = ""
    refusal: Optional[RefusedError] = None


def settled(flow: ReplicationFlow, missing: Sequence[str]) -> SettledFlow:
    """Decide how `flow` runs; `missing` are the requests of a fence that the target's brokers do not accept.

    A file of MirrorMaker that does not set `delivery` asks for MirrorMaker's own promise, at least once. It gets that
    where the target cannot be fenced. Exactly-once in YAML, by default as well, is never weakened.
    """
    if not missing:
        return SettledFlow(flow)
    lack = "are older than Kafka 2.5" if set(missing) == {"InitProducerId"} else f"do not accept {', '.join(missing)}"
    old = f"{flow.name}: the brokers of {flow.target.alias} {lack} and cannot fence a second driver"
    if flow.delivery != AT_LEAST_ONCE and not flow.delivery_may_fall:
        hint = f"set delivery: {AT_LEAST_ONCE} and run one driver of this flow only"
        return SettledFlow(flow, refusal=RefusedError(f"{old}; nothing was written there", hint, code="MIR-305"))
    fallen = "" if flow.delivery == AT_LEAST_ONCE else f"; delivery is {AT_LEAST_ONCE}, MirrorMaker's own promise"
    warning = f"{old}{fallen}; run one driver of this flow only"
    return SettledFlow(replace(flow, delivery=AT_LEAST_ONCE), warning)


def runnable(flow: ReplicationFlow, missing: Sequence[str]) -> ReplicationFlow:
    """The flow as it can run on its target; logs what the target does not guarantee. Raises `RefusedError`."""
    found = settled(flow, missing)
    if found.refusal is not None:
        raise found.refusal
    if found.warning:
        log.warning("%s", found.warning)
    return found.flow

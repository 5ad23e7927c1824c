"""Quotas of a client id on a running broker (KIP-546)."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Iterator, Optional

from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest

from mirror_lib.kafka.connection import LogClient, Network
from tests.lab.brokers import KafkaBroker


def _alter(broker: KafkaBroker, client_id: Optional[str], key: str, value: float, remove: bool) -> None:
    entry = AlterClientQuotasRequest.EntryData
    entity = entry.EntityData(entity_type="client-id", entity_name=client_id)
    change = entry.OpData(key=key, value=value, remove=remove)
    request = AlterClientQuotasRequest(entries=[entry(entity=[entity], ops=[change])], validate_only=False)
    client = LogClient(Network(), broker.name, {"bootstrap_servers": broker.bootstrap})
    client.connect(time.monotonic() + 30)
    assert [each.error_code for each in client.call(None, request).entries] == [0]
    client.close()


@contextmanager
def quota(broker: KafkaBroker, client_id: Optional[str], key: str, value: float) -> Iterator[None]:
    """While the block runs the client id, or every one, has this quota: `producer_byte_rate` in bytes a second."""
    _alter(broker, client_id, key, value, remove=False)
    try:
        yield
    finally:
        _alter(broker, client_id, key, value, remove=True)

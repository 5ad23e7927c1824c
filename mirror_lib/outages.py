"""Reports clusters that stop answering during a continuous run, and when they answer again.

A flow itself notices an outage late: the driver retries its requests for a minute, and tasks wait for their partitions.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import LoginError, MirrorError, cause_of
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.connection import LogClient
from mirror_lib.progress import ClusterChecks, Outage
from mirror_lib.supervisor import REFUSED_SECONDS

log = logging.getLogger(__name__)

# How often a cluster is asked, and how long a check waits for its answer.
CHECK_SECONDS, ANSWER_SECONDS = 2.0, 4.0
END_SECONDS = 1.0


class OutageWatch:
    """Checks during the block whether the clusters of `flows` answer, each in a thread with one connection.

    `notify` gets an `Outage` for each flow of the cluster at its beginning and at its end, from these threads. An
    outage that continues at the end of the block has no end.
    """

    def __init__(self, flows: Sequence[ReplicationFlow], notify: Callable[[Outage], None]) -> None:
        self._notify = notify
        self._over = threading.Event()
        roles: Dict[str, Tuple[ClusterConfig, str]] = {}
        users: Dict[str, List[Tuple[str, str]]] = {}
        for flow in flows:
            for side, cluster, role in (("source", flow.source, "consumer"), ("target", flow.target, "producer")):
                roles.setdefault(cluster.alias, (cluster, role))
                users.setdefault(cluster.alias, []).append((flow.name, side))
        self._threads = [
            threading.Thread(target=self._run, name=f"outages of {each}", args=(*roles[each], users[each]), daemon=True)
            for each in roles
        ]

    def __enter__(self) -> OutageWatch:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        until = time.monotonic() + END_SECONDS
        for each in self._threads:
            each.join(max(0.0, until - time.monotonic()))

    def _run(self, cluster: ClusterConfig, role: str, users: Sequence[Tuple[str, str]]) -> None:
        checks, pause = ClusterChecks(), CHECK_SECONDS
        with ExitStack() as stack:
            client: Optional[LogClient] = None
            while not self._over.wait(pause):
                pause, began = CHECK_SECONDS, time.monotonic()
                try:
                    if client is None:
                        client = stack.enter_context(log_client(cluster, role, began + ANSWER_SECONDS))
                        answered = True
                    else:
                        answered = client.answers(ANSWER_SECONDS)
                except LoginError as error:
                    # The cluster answers; the flow itself reports the error.
                    log.debug("%s: %s", cluster.alias, error)
                    answered, pause = True, REFUSED_SECONDS
                except MirrorError as error:
                    log.debug("%s: %s", cluster.alias, error)
                    answered = False
                except Exception as error:
                    # Ends only this thread. A fault in a check says nothing about the cluster.
                    log.warning("%s is no longer checked for outages: %s", cluster.alias, cause_of(error))
                    log.debug("outage check failed", exc_info=True)
                    return
                if not answered:
                    stack.close()  # the next check connects again, by the bootstrap servers
                    client = None
                before, checks = checks, checks.after(answered, began, time.monotonic())
                self._report(before, checks, users)

    def _report(self, before: ClusterChecks, after: ClusterChecks, users: Sequence[Tuple[str, str]]) -> None:
        begun = before.since if after.since is None else after.since
        if before.unreachable == after.unreachable or begun is None:
            return
        lasted = time.monotonic() - begun
        for flow, side in users:
            self._notify(Outage(flow, side, time.time() - lasted, None if after.unreachable else lasted))

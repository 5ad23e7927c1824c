"""Reports clusters that stop answering during a continuous run, and when they answer again.

A flow itself notices an outage late: the driver retries its requests for a minute, and tasks wait for their partitions.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Callable, Dict, Generator, Iterator, List, Optional, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import LoginError, MirrorError, cause_of
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.connection import LogClient
from mirror_lib.progress import ClusterChecks, Outage
from mirror_lib.supervisor import REFUSED_SECONDS
from mirror_lib.threads import Repeating, running

log = logging.getLogger(__name__)

# How often a cluster is asked, and how long a check waits for its answer.
CHECK_SECONDS, ANSWER_SECONDS = 2.0, 4.0
END_SECONDS = 1.0


@contextmanager
def outages_watched(flows: Sequence[ReplicationFlow], notify: Callable[[Outage], None]) -> Iterator[None]:
    """Check during the block whether the clusters of `flows` answer, each in a thread with one connection.

    `notify` gets an `Outage` for each flow of the cluster at its beginning and at its end, from these threads. An
    outage that continues at the end of the block has no end.
    """
    roles: Dict[str, Tuple[ClusterConfig, str]] = {}
    users: Dict[str, List[Tuple[str, str]]] = {}
    for flow in flows:
        for side, cluster, role in (("source", flow.source, "consumer"), ("target", flow.target, "producer")):
            roles.setdefault(cluster.alias, (cluster, role))
            users.setdefault(cluster.alias, []).append((flow.name, side))
    checks = [
        Repeating(f"outages of {each}", _checks(*roles[each], partial(_report, notify, users[each]))) for each in roles
    ]
    with running(checks, END_SECONDS):
        yield


def _checks(
    cluster: ClusterConfig, role: str, report: Callable[[ClusterChecks, ClusterChecks], None]
) -> Generator[float, None, None]:
    checks, pause = ClusterChecks(), CHECK_SECONDS
    with ExitStack() as stack:
        client: Optional[LogClient] = None
        while True:
            yield pause
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
            report(before, checks)


def _report(
    notify: Callable[[Outage], None], users: Sequence[Tuple[str, str]], before: ClusterChecks, after: ClusterChecks
) -> None:
    begun = before.since if after.since is None else after.since
    if before.unreachable == after.unreachable or begun is None:
        return
    lasted = time.monotonic() - begun
    for flow, side in users:
        notify(Outage(flow, side, time.time() - lasted, None if after.unreachable else lasted))

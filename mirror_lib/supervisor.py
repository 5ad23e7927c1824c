"""Supervises one flow, for the main job and the groups job: a thread, its restarts, a watched query, an orderly end.

`SupervisedFlow` restarts the flow after transient errors, and keeps the error that ended it.

SIGTERM and Ctrl-C set `stop` (`commands.run.stop_on_signals`). `WatchedQuery.until_end` lets the running call end: a
cycle ends by itself, a tail is cancelled, and one closing cycle fences, recovers and commits what it appended
(`replication.flow.FlowMirror`). Then the query is stopped, the end of the run is recorded (`copy_job.FlowRun`), and
`await_end` returns. A flow that waits for a cluster is abandoned after the patience.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Tuple, Type

from mirror_lib.errors import ClusterError, FencedError, LoginError, MirrorError, SparkEndedError, cause_of
from mirror_lib.log_lines import in_flow, of_this_flow
from mirror_lib.spark.errors import asked_again, is_sparks, memory_hint, spark_ended
from mirror_lib.threads import Stop

if TYPE_CHECKING:
    # Not at run time: Spark 3.3 has no such module.
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

RESTART_SECONDS = 5.0
# Repeated refused logins may lock an account.
REFUSED_SECONDS = 60.0


class SupervisedFlow(ABC):
    """A flow in its own thread. `_live` is one run of it; `_over` is called with the result of the last.

    After an error of the kinds in `_passing()` it restarts, until `stop` is set. It does not if a login is refused
    before it was `_connected` for the first time. `flow` is the name in its log lines, by default `name`.
    """

    def __init__(self, name: str, stop: threading.Event, flow: Optional[str] = None) -> None:
        self._name = name
        self._logs_for = flow or name
        self._stop = stop
        self._busy = threading.Lock()
        self._connected = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @abstractmethod
    def _live(self) -> Optional[MirrorError]: ...

    @abstractmethod
    def _passing(self) -> Tuple[Type[MirrorError], ...]: ...

    @abstractmethod
    def _over(self, error: Optional[MirrorError]) -> None: ...

    def _run(self) -> None:
        with in_flow(self._logs_for):
            while True:
                error = self._attempt()
                again = error is not None and self._is_transient(error)
                pause = REFUSED_SECONDS if isinstance(error, LoginError) else RESTART_SECONDS
                if not again or self._stop.wait(pause):
                    break
                log.warning("%s; %s starts again", error, self._name)
            # A stopped flow has not failed if it waited for a cluster, or Java was stopped too.
            waited = again and isinstance(error, ClusterError)
            self._over(None if self._stop.is_set() and (waited or isinstance(error, SparkEndedError)) else error)

    def _is_transient(self, error: MirrorError) -> bool:
        refused = isinstance(error, LoginError) and not self._connected
        transient = isinstance(error, self._passing()) and not refused
        if self._passing() and not transient and not self._stop.is_set():
            # Other flows may run without end, so a report at their end would come too late.
            log.error("%s; %s has ended", error, self._name)
        return transient

    def _attempt(self) -> Optional[MirrorError]:
        try:
            return self._live()
        except MirrorError as error:
            return error
        except Exception as error:
            # The thread's last handler: without it a flow could end silently and the job with exit code 0.
            return unforeseen(self._name, error)


def unforeseen(name: str, error: Exception) -> MirrorError:
    """An unexpected exception, as an error of the flow `name`. Only Spark's exceptions may be transient: a fault in the
    code does not fix itself."""
    gone = spark_ended(name)
    if gone is not None:
        return gone
    if is_sparks(error):
        # Usually a query that cannot start: its checkpoint is unavailable, or another query of its name has not ended.
        log.debug("%s failed", name, exc_info=error)
        said = cause_of(error)
        return ClusterError(f"{name}: Spark failed: {said}", memory_hint(said), code="MIR-503")
    log.error("%s failed", name, exc_info=error)
    return MirrorError(f"{name}: {type(error).__name__}: {cause_of(error)}")


class WatchedQuery:
    """The calls that one streaming query makes into Python, and its end. `busy` is locked while one runs."""

    def __init__(self, stop: threading.Event, busy: threading.Lock) -> None:
        self._stop, self._busy = stop, busy
        self._closed = False
        self._failure: Optional[BaseException] = None

    def guarded(self, call: Callable[..., None]) -> Callable[..., None]:
        """`call`, one at a time. A call that starts when the query must end does nothing: otherwise it would never
        end."""

        call = of_this_flow(call)

        def guarded_call(*given: Any) -> None:
            with self._busy:
                if self._closed or self._stop.is_set():
                    return
                failed = None
                try:
                    call(*given)
                except BaseException as error:
                    self._failure, failed = error, type(error).__name__
                if failed is not None:
                    # Spark matches the text against a pattern that takes a stack frame for each character: Java's trace
                    # overflows its stack, and Spark prints a thousand lines of that. So no text of Java's may be in it,
                    # nor may Java be asked for one: where it does not answer, the trace of that has the first one.
                    raise RuntimeError(f"{failed}, which the mirror reports")

        return guarded_call

    def until_end(
        self, query: StreamingQuery, grace_seconds: float, done: Callable[[], bool] = lambda: False
    ) -> Optional[BaseException]:
        """Return when `query` has ended: the failure, if it failed. The query is stopped when `stop` is set or `done`
        returns True.

        A running call may take `grace_seconds` then. Raises an unexpected exception of a call.
        """
        while asked_again(lambda: query.isActive) and not self._stop.wait(0.2) and not done():
            pass
        if asked_again(lambda: query.isActive):
            self._closed = True
            if self._busy.acquire(timeout=grace_seconds):
                self._busy.release()
            failure = self._failure  # read now: a call that the query's end interrupts has not failed
            query.stop()
            # A stopped flow has not failed where a cluster is unavailable, or Java was stopped as well.
            own_end = isinstance(failure, (ClusterError, FencedError, SparkEndedError))
            if failure is None or own_end or is_sparks(failure):
                return None
        else:
            failure = self._failure
        if isinstance(failure, Exception) and not isinstance(failure, MirrorError):
            raise failure
        return failure or query.exception()


def await_end(runs: Sequence[SupervisedFlow], stop: threading.Event, patience_seconds: float, left: str) -> bool:
    """Return when all `runs` have ended, or `patience_seconds` after `stop` was set: one may wait for a cluster that
    does not answer. Returns whether all have ended.

    `left` is the log text about a run that did not end.
    """
    given_up_at: Optional[float] = None
    while not all([run.wait(0.1) for run in runs]):
        if stop.is_set() and given_up_at is None:
            at = stop.at if isinstance(stop, Stop) else None
            given_up_at = (time.monotonic() if at is None else at) + patience_seconds
        if given_up_at is not None and time.monotonic() > given_up_at:
            log.warning("a flow did not end in time; %s", left)
            return False
    return True

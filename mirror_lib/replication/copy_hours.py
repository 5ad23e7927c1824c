"""Decides when a flow may copy: its windows, the clock and a requested stop give an end or a wait."""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime
from typing import Callable, Optional, Protocol

from mirror_lib.config.model import ReplicationFlow

log = logging.getLogger(__name__)

# The system clock may be set or the machine suspended, so the time is read again after at most this long.
CHECK_SECONDS = 60.0


class Halt(Protocol):
    """Signals that copying must end."""

    def is_set(self) -> bool:
        """Whether copying must end now."""


class CopyHours:
    """The copy windows of one flow. `stop` ends the run; the caller gives the clock, in seconds since 1970."""

    def __init__(self, flow: ReplicationFlow, stop: threading.Event, clock: Callable[[], float] = time.time) -> None:
        self._flow = flow
        self._stop = stop
        self._clock = clock
        self._over = False

    def over(self) -> bool:
        """Whether a window has closed, or none was open. Once True, it stays True until `wait` has returned."""
        self._over = self._over or not self._flow.opening(self._clock()).is_open
        return self._over

    def is_set(self) -> bool:
        """Whether copying must end: the run was stopped, or a window has closed."""
        return self._stop.is_set() or self.over()

    def when(self) -> str:
        """When the windows next open or close, such as `22:00 (Europe/Berlin)`, with the date."""
        until = self._flow.opening(self._clock()).until
        zone = self._flow.copy_window_timezone
        return "never" if until is None else f"{datetime.fromtimestamp(until, zone.zone):%a %d %b %H:%M} ({zone.name})"

    def wait(self) -> bool:
        """Wait for a window. True when one is open, False when the run is stopped. Logs a line if it has to wait."""
        reported: Optional[str] = None
        while not self._stop.is_set():
            state = self._flow.opening(self._clock())
            if state.is_open:
                self._over = False
                if reported is not None:
                    log.warning("%s: the copy window is open; the flow resumes", self._flow.name)
                return True
            if reported != self.when():
                reported = self.when()
                log.warning("%s: the copy window is closed; the flow resumes at %s", self._flow.name, reported)
            left = CHECK_SECONDS if state.until is None else state.until - self._clock()
            self._stop.wait(max(0.0, min(left, CHECK_SECONDS)))
        return False

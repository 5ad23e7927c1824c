"""One thing that is done again and again beside the copy, in a thread of its own: a turn and its interval in."""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Optional

from mirror_lib.control.sync import Synced
from mirror_lib.errors import LoginError, MirrorError, cause_of

log = logging.getLogger(__name__)

# What failed is tried again after a minute, also where its interval is longer; a login that was refused also where its
# interval is shorter, as any attempt may be the one that locks an account.
RETRY_SECONDS = 60.0


class Duty:
    """Takes a turn at once and then every `interval` seconds; `None` is once.

    `told` gets what each turn did, errors as problems. `looked` is set when the first turn is over, or will not come.
    """

    def __init__(
        self, name: str, interval: Optional[float], turn: Callable[[], Synced], told: Callable[[Synced], None]
    ) -> None:
        self._interval, self._turn, self._told = interval, turn, told
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.looked = threading.Event()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """No further turn; the present one may go on for a while."""
        self._over.set()

    def wait(self, seconds: float) -> bool:
        """True when it has ended."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause: Optional[float] = 0.0
        while pause is not None and not self._over.wait(pause):
            began = time.monotonic()
            synced = self._try()
            self._told(synced)
            self.looked.set()
            pause = pause_after(self._interval, synced, time.monotonic() - began)
        self.looked.set()

    def _try(self) -> Synced:
        try:
            return self._turn()
        except MirrorError as error:
            return Synced(problems=(str(error),), refused=isinstance(error, LoginError))
        except Exception as error:
            # The thread's last resort: without it a duty could end in silence.
            log.debug("%s failed", self._thread.name, exc_info=True)
            return Synced(problems=(f"{type(error).__name__}: {cause_of(error)}",))


def pause_after(interval: Optional[float], synced: Synced, taken: float) -> Optional[float]:
    """Seconds until the next turn, counted from the start of this one; `None` for no further turn. Pure."""
    if interval is None:
        return None
    wanted = min(interval, RETRY_SECONDS) if synced.problems else interval
    return max(0.0, (RETRY_SECONDS if synced.refused else wanted) - taken)

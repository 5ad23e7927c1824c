"""How a flow's lives ended in; whether it may live on although its state could not be read or written, out. Pure.

A new life is as safe as a driver's start after a crash: it reads the ledger, fences, and looks at the remote logs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

# So long a store may be away. Then a flow ends, for somebody to look.
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True)
class StorageTrust:
    """`proven`: this process has seen rows of the flow, or written some. Until then a folder that cannot be used is
    more likely to be a wrong one. `away_since`: when the first of the lives failed at it in a row, by the caller's
    clock in seconds; None while all is well."""

    proven: bool = False
    away_since: Optional[float] = None

    def seen(self, history: bool) -> StorageTrust:
        """What is known when rows of the flow were found or not."""
        return replace(self, proven=self.proven or history)

    def after(self, began: float, ended: float, wrote: bool, failed: bool) -> StorageTrust:
        """What is known behind a life that `wrote` to the ledger or did not, and `failed` at its state or did not."""
        if not failed:
            return replace(self, proven=self.proven or wrote, away_since=None)
        # Who writes, or lives for long, has not been without a store since the last failure.
        anew = self.away_since is None or wrote or ended - began > PATIENCE_SECONDS
        return replace(self, proven=self.proven or wrote, away_since=ended if anew else self.away_since)

    def lasts(self, now: float) -> bool:
        """Whether to try once more."""
        return self.proven and self.away_since is not None and now - self.away_since < PATIENCE_SECONDS

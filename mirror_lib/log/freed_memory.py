"""What becomes of large pieces of memory that this process freed: kept for the next fetch. Linux with glibc only."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache

# <malloc.h>. A piece of up to so many bytes comes from the heap (more than this glibc refuses), and the heap is given
# back from so many free bytes at its end on: a process then holds at most that much for nothing.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_FROM_HEAP_BYTES = 32 * 1024 * 1024
_KEPT_BYTES = 64 * 1024 * 1024


@lru_cache(maxsize=None)
def keep_freed_memory() -> bool:
    """Make the allocator keep what is freed, up to 64 MB; False where it is another one, which then does as it does.

    A fetch answer takes several pieces of megabytes. By default each goes back to the system when it is freed, and each
    page of the next one is asked for again, which costs more than to take the answer apart.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    return bool(libc.mallopt(_MMAP_THRESHOLD, _FROM_HEAP_BYTES) and libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))

"""Bounds on the C library's memory allocator, set once when the daemon starts.

glibc gives each new thread an arena of its own and grows its threshold for mapped blocks. With twenty threads, freed memory stays in arenas
that nobody uses any more: 23 MB after ten busy minutes, when the daemon's own objects had grown by one (docs/robustness.md).
Python's small objects do not pass through these arenas.
"""

from __future__ import annotations

import ctypes

# From malloc.h.
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_ARENAS = 2
_MAPPED_FROM_BYTES = 128 * 1024


def bound_allocator() -> None:
    """Blocks above the threshold go back to the system when they are freed. Does nothing where the C library is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)

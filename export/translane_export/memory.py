"""Gives memory that is no longer used back to the system."""

from __future__ import annotations

import ctypes
import gc


def release_memory() -> None:
    """Collect what nothing refers to, and let the allocator keep none of it, where it can be asked to (glibc)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

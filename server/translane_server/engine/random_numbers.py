"""Random numbers that depend on a sentence's seed, a hypothesis' number and a position, and on nothing else.

The generator is counter-based (Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405): each number is a hash of
these three coordinates. So a row draws the same numbers in any batch. The hash applies the finalizer of SplitMix64
(Steele et al. 2014, https://doi.org/10.1145/2660193.2660195) once for each coordinate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import Int32Array, IntArray

UIntArray = npt.NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_RESOLUTION = 53  # bits of a float64's mantissa


def uniforms(seeds: UIntArray, streams: IntArray, positions: Int32Array) -> npt.NDArray[np.float64]:
    """Numbers from the uniform distribution over [0, 1), one for each of n rows.

    Args:
        seeds: seed of each row's sentence, [n].
        streams: number of each row's hypothesis in its sentence, [n].
        positions: position of the token to draw, [n].

    Returns:
        The numbers, [n].
    """
    hashed = _mix(_bits(seeds) + _GAMMA)
    hashed = _mix((hashed ^ _bits(streams)) + _GAMMA)
    hashed = _mix((hashed ^ _bits(positions)) + _GAMMA)
    return (hashed >> np.uint64(64 - _RESOLUTION)).astype(np.float64) * 2.0**-_RESOLUTION


def _bits(numbers: npt.NDArray[np.integer[Any]]) -> UIntArray:
    """Convert to 64 bits. Negative numbers wrap around. A scalar becomes an array, whose overflow does not warn."""
    return np.atleast_1d(numbers).astype(np.uint64)


def _mix(bits: UIntArray) -> UIntArray:
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST_FACTOR
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND_FACTOR
    return bits ^ (bits >> np.uint64(31))

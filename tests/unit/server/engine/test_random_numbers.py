import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane_server.engine.sampling import uniforms

COUNT = 100_000
GOLDEN = [
    0.13870941014555427,
    0.6935121390102292,
    0.34163131066679175,
    0.42321144819582723,
    0.9791117825642726,
    0.8461375404149545,
]
CORRELATION = 5 / COUNT**0.5  # five standard deviations of independent numbers' correlation


def draw(seeds, streams, positions):
    seeds, streams, positions = np.broadcast_arrays(seeds, streams, positions)
    return uniforms(seeds.astype(np.uint64), streams.astype(np.int64), positions.astype(np.int32))


def chi_square_per_degree(numbers, bins=1000):
    """How many standard deviations the statistic is above its expectation."""
    expected = len(numbers) / bins
    statistic = ((np.histogram(numbers, bins, (0, 1))[0] - expected) ** 2 / expected).sum()
    return (statistic - (bins - 1)) / (2 * (bins - 1)) ** 0.5


SERIES = {
    "seeds": lambda n: draw(np.arange(n), 0, 0),
    "high seeds": lambda n: draw(np.arange(n, dtype=np.uint64) << np.uint64(40), 0, 0),
    "streams": lambda n: draw(1, np.arange(n), 0),
    "attempts": lambda n: draw(1, np.arange(n) << 32, 0),
    "positions": lambda n: draw(1, 0, np.arange(n)),
    "a sentence's grid": lambda n: draw(7, np.arange(n) // 100, np.arange(n) % 100),
}


@pytest.mark.parametrize("name", SERIES)
def test_numbers_are_uniform(name):
    numbers = SERIES[name](COUNT)
    assert 0 <= numbers.min() < 1e-3
    assert 1 - 1e-3 < numbers.max() < 1
    assert abs(chi_square_per_degree(numbers)) < 5


def test_the_check_of_uniformity_can_fail():
    assert chi_square_per_degree(SERIES["positions"](COUNT) ** 1.1) > 5


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("lag", [1, 2, 16, 100])
def test_neighbours_are_uncorrelated(name, lag):
    numbers = SERIES[name](COUNT)
    assert abs(np.corrcoef(numbers[:-lag], numbers[lag:])[0, 1]) < CORRELATION


def test_the_same_index_of_different_coordinates_is_uncorrelated():
    n = np.arange(COUNT)
    series = [draw(n, 0, 0), draw(0, n, 0), draw(0, 0, n), draw(n, 1, 0), draw(n, 0, 1), draw(n, n, n)]
    correlations = np.corrcoef(series) - np.eye(len(series))
    assert np.abs(correlations[1:, :][:, 1:]).max() < CORRELATION
    assert np.abs(correlations[0]).max() < CORRELATION


def test_numbers_stay_what_they_are():
    seeds = np.array([0, 1, 1, 1, 2**64 - 1, 42], np.uint64)
    streams = np.array([0, 0, 1, 0, 3, 1 << 32])
    positions = np.array([0, 0, 0, 1, 255, 7], np.int32)
    assert uniforms(seeds, streams, positions).tolist() == GOLDEN


def mixed(bits):
    """SplitMix64's next number, in whole numbers without a limit."""
    bits = (bits + 0x9E3779B97F4A7C15) % 2**64
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
    return bits ^ bits >> 31


def test_the_hash_is_that_of_splitmix64():
    assert mixed(1234567) == 6457827717110365317, "the first number that its reference draws from this seed"


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))
def test_a_number_is_a_hash_of_its_coordinates(seed, stream, position):
    expected = (mixed(mixed(mixed(seed) ^ stream) ^ position) >> 11) / 2**53
    assert draw(seed, stream, position).tolist() == [expected]


def test_a_row_draws_the_same_whatever_the_others():
    n = np.arange(50)
    together = draw(n % 5, n % 7, n)
    assert [draw(i % 5, i % 7, i)[0] for i in range(50)] == together.tolist()

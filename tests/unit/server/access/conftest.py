"""A clock for tests of what callers may ask for in a time."""

import pytest


class Clock:
    """Stands still until a test sets `now` [seconds]."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()

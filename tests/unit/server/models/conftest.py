import pytest

from fakes.models import Model
from translane_server.observation.metrics import Metrics


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def model(metrics):
    return Model(metrics)

"""Messages between the parent and a front end keep all that they carry."""

from prometheus_client import CollectorRegistry, Histogram

from fakes.serving import make_settings
from translane_server.errors import ModelNotFoundError, SettingsError, UnavailableError
from translane_server.front_ends.messages import Answer, Change, FrontEndSetup, Health, Question, Refusal
from translane_server.observation.metrics import Metrics
from translane_server.replica.messages import Frames, framed


def test_what_is_sent_arrives():
    messages = [
        FrontEndSetup(1, make_settings(model_settings={"m": {"rows": 4}}, http_origins=["*"]), 3, 7),
        Question(4, Change("LoadModel", b"\x0a\x01m")),
        Answer(4, Refusal(UnavailableError, "later", 1.5)),
        Answer(5, Refusal(ModelNotFoundError, "none")),
        Health({"": 1, "translane.v1.TranslationService/m": 2}),
    ]
    data = b"".join(map(framed, messages))
    frames = Frames()
    found = frames.feed(data[:100])
    assert found + frames.feed(data[100:]) == messages


def test_metrics_survive_with_their_exemplars():
    registry = CollectorRegistry()
    Histogram("h", "…", registry=registry).observe(2, exemplar={"trace_id": "a1"})
    families = [*registry.collect(), *Metrics().registry.collect()]
    (answer,) = Frames().feed(framed(Answer(0, families)))
    assert answer.content == families


def test_the_error_that_stops_a_front_end_keeps_its_exit_code():
    (found,) = Frames().feed(framed(SettingsError("--port is wrong")))
    assert (type(found), str(found), found.exit_code) == (SettingsError, "--port is wrong", 2)

"""What a service refuses: the client raises the error of a single server, with all that the error says."""

import pytest

from helpers.client_calls import ClientCall, ask
from translane import InvalidArgument, NotFound, QueueFull, ResourceExhausted, TranslaneError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]  # Ray takes minutes to start on a busy machine

TEXT = "我有一只猫。"
LONG = "猫" * 1000  # more tokens than a sentence may have


def translate(name, subject=TEXT, **options):
    return ClientCall(name, "translate", subject, options)


# A wrong call, the class of its error, its reason, and the first field at fault.
WRONG = [
    (translate("an unknown model", model="nobody"), NotFound, "MODEL_NOT_FOUND", None),
    (translate("an unknown language", target_language="fr"), InvalidArgument, "INVALID_FIELD", "target_language"),
    (translate("too many beams", beam_size=1000), InvalidArgument, "INVALID_FIELD", "options.beam_size"),
    (translate("beams and samples", beam_size=4, top_k=3), InvalidArgument, "INVALID_FIELD", None),
    (translate("two mistakes", top_p=2.0, max_length=0), InvalidArgument, "INVALID_FIELD", None),
    (translate("a wrong pattern", preserve=["("]), InvalidArgument, "INVALID_FIELD", "options.preserve[0]"),
    (translate("no such glossary", glossaries=["nothing"]), InvalidArgument, "INVALID_FIELD", None),
    (translate("no shortlist", use_shortlist=True), InvalidArgument, "INVALID_FIELD", "options.use_shortlist"),
    (
        translate("a long text in the second batch", [TEXT] * 66 + [LONG], split_sentences=False),
        InvalidArgument,
        "INVALID_FIELD",
        "texts[66]",
    ),
    (translate("a long message", "猫" * 450_000), ResourceExhausted, "MESSAGE_TOO_LARGE", None),
    (
        ClientCall("nothing to score", "score", [(TEXT, "a"), ("", "a")]),
        InvalidArgument,
        "INVALID_FIELD",
        "inputs[1].source",
    ),
    (
        ClientCall("a wrong stream", "translate_stream", TEXT, {"num_hypotheses": 3, "beam_size": 3}),
        InvalidArgument,
        "INVALID_FIELD",
        "options.num_hypotheses",
    ),
    (
        ClientCall("a stream of an unknown model", "translate_stream", TEXT, {"model": "nobody"}),
        NotFound,
        "MODEL_NOT_FOUND",
        None,
    ),
]


def error_of(client, call):
    with pytest.raises(TranslaneError) as caught:
        ask(client, call)
    return caught.value


def told(error):
    return type(error), error.code, str(error), error.reason, error.violations, error.retry_after


@pytest.mark.parametrize(("call", "kind", "reason", "field"), WRONG, ids=[call.name for call, *_ in WRONG])
def test_a_wrong_call_is_told_as_a_server_tells_it(client, undisturbed, call, kind, reason, field):
    error = error_of(client, call)
    assert told(error) == told(error_of(undisturbed, call))
    assert (type(error), error.reason) == (kind, reason)
    assert not isinstance(error, QueueFull)
    if kind is InvalidArgument:
        assert error.violations
    if field:
        assert error.field == field

"""JSON of messages: protobuf's own mapping, and sentences about what is wrong."""

import json

import pytest
from google.protobuf import json_format

from translane.v1 import translation_pb2 as pb
from translane_server.core.budget import UNLIMITED, Budget, WorkEndedError
from translane_server.core.errors import InvalidRequestError
from translane_server.http.json_messages import read_json, write_json

MANY = 4096 + 8 * 256


def read(body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_json(data, pb.TranslateRequest, 256, UNLIMITED)


def test_both_spellings_of_a_name_are_read_as_protobuf_reads_them():
    camel = {"texts": ["你好"], "sourceLanguage": "zh", "options": {"beamSize": 4, "seed": "18446744073709551615"}}
    snake = {"texts": ["你好"], "source_language": "zh", "options": {"beam_size": 4, "seed": 18446744073709551615}}
    assert read(camel) == read(snake) == json_format.ParseDict(camel, pb.TranslateRequest())
    assert read({"texts": None, "format": 2}) == pb.TranslateRequest(format=pb.FORMAT_HTML)


def test_an_answer_is_what_protobuf_writes_without_spaces():
    answer = pb.TranslateResponse(model="m", translations=[{"hypotheses": [{"text": "é“ü", "score": -0.1}]}])
    written = write_json(answer)
    assert json.loads(written) == json_format.MessageToDict(answer)
    assert written.decode().startswith('{"translations":[{"hypotheses":[{"text":"é“ü","score":-0.1')


@pytest.mark.parametrize(
    ("body", "field", "problem"),
    [
        (b"", "body", "is empty; send at least {}"),
        (b"{", "body", "is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        (b'{"texts": ["\xff"]}', "body", "is not UTF-8 at byte 12"),
        (b"\xff\xfe{\x00}\x00", "body", "is not UTF-8 at byte 0"),
        (b"[]", "body", "must be an object"),
        (b"[" * 3_000, "body", "is nested too deeply"),
        (b'{"texts":' * 3_000, "body", "is nested too deeply"),
        (b"[" * 100_000, "body", f"has more than {MANY} JSON values"),
        (b'["",' * 500_000, "body", f"has more than {MANY} JSON values"),
        (b'{"priority": ' + b"9" * 5000 + b"}", "body", "has a number with too many digits"),
        (b'{"model": "a", "model": "b"}', "model", "is in one object twice"),
        ({"txts": []}, "txts", "is no field of TranslateRequest; did you mean texts?"),
        ({"options": {"beam": 2}}, "options.beam", "is no field of DecodingOptions; did you mean beamSize?"),
        ({"nonsense!": 1}, "nonsense!", "is no field of TranslateRequest"),
        ({"texts": "one"}, "texts", "must be a list"),
        ({"texts": ["one", 2]}, "texts[1]", "must be a string"),
        ({"texts": ["one", None]}, "texts[1]", "must be a string"),
        ({"options": 1}, "options", "must be an object"),
        ({"options": {"beamSize": "x"}}, "options.beamSize", "must be an integer of 32 bits"),
        ({"options": {"beamSize": 2**31}}, "options.beamSize", "must be an integer of 32 bits"),
        ({"options": {"seed": -1}}, "options.seed", "must be an integer of 64 bits, not below 0"),
        ({"options": {"topP": "much"}}, "options.topP", "must be a number"),
        ({"options": {"earlyStopping": "yes"}}, "options.earlyStopping", "must be true or false"),
        ({"options": {"terminology": [{}, 7]}}, "options.terminology[1]", "must be an object"),
        ({"options": {"terminology": [{"sorce": ""}]}}, "options.terminology[0].sorce", "is no field of Term"),
        ({"format": "HTML"}, "format", "must be one of FORMAT_UNSPECIFIED, FORMAT_TEXT, FORMAT_HTML"),
        (b'{"texts": ["\\ud800"]}', "texts[0]", "is no Unicode text: it has half of a surrogate pair"),
        (b'{"\\ud800": 1}', "body", "has a name that is no Unicode text"),
        (b'{"options": {"\\udfff": 1}}', "body", "has a name that is no Unicode text"),
        (b'{"format": "\\ud800"}', "format", "must be one of FORMAT_UNSPECIFIED"),
        (b'{"texts":[' + b'"",' * 300_000 + b'""]}', "body", f"has more than {MANY} JSON values"),
        (b'{"options":{"terminology":[' + b"{}," * 300_000 + b"{}]}}", "body", f"has more than {MANY} JSON values"),
        (b"[" + b"[]," * 300_000, "body", f"has more than {MANY} JSON values"),  # counted before it is parsed
        (b'{"texts":["' + b"a," * 300_000, "body", "is not JSON: Unterminated string"),
        (b'{"texts":["' + b'\\",' * 300_000, "body", "is not JSON: Unterminated string"),
    ],
)
def test_what_is_wrong_is_named(body, field, problem):
    with pytest.raises(InvalidRequestError) as caught:
        read(body)
    (violation,) = caught.value.violations
    assert violation.field == field
    assert violation.description.startswith(problem)


def test_a_request_of_many_texts_is_read():
    assert len(read({"texts": ["a"] * 256}).texts) == 256


def test_commas_of_texts_are_no_values():
    text = 'a, \\ "b", ' * 20_000
    assert read({"texts": [text]}).texts == [text]


def test_a_body_that_nobody_waits_for_any_more_is_not_read_on():
    budget = Budget()
    budget.end()
    with pytest.raises(WorkEndedError):
        read_json(b"{}", pb.TranslateRequest, 256, budget)

"""What travels over HTTP: JSON of messages, errors, the status, and the OpenAPI document."""

import json
from importlib.resources import files

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor as Field
from google.rpc import status_pb2
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from fakes.models import FakeDecoder
from helpers.http_calls import PATHS
from translane.v1 import translation_pb2 as pb
from translane_server.api.status import CODES, status_of
from translane_server.core.budget import UNLIMITED, Budget, WorkEndedError
from translane_server.core.errors import InvalidRequestError, QueueFullError
from translane_server.engine.sequence import StepStats
from translane_server.http.errors import RefusedError
from translane_server.http.json_messages import read_json
from translane_server.http.port import status_report
from translane_server.observation.metrics import Metrics
from translane_server.text.documents import KINDS
from translane_server.text.language_id import can_identify

MANY = 4096 + 8 * 256


def read(body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_json(data, pb.TranslateRequest, 256, UNLIMITED)


def test_both_spellings_of_a_name_are_read_as_protobuf_reads_them():
    camel = {"texts": ["你好"], "sourceLanguage": "zh", "options": {"beamSize": 4, "seed": "18446744073709551615"}}
    snake = {"texts": ["你好"], "source_language": "zh", "options": {"beam_size": 4, "seed": 18446744073709551615}}
    assert read(camel) == read(snake) == json_format.ParseDict(camel, pb.TranslateRequest())
    assert read({"texts": None, "format": 2}) == pb.TranslateRequest(format=pb.FORMAT_HTML)


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
        (b"[" * 100_000, "body", f"has more than {MANY} JSON values"),  # counted before it is parsed
        (b'["",' * 500_000, "body", f"has more than {MANY} JSON values"),
        (b'{"priority": ' + b"9" * 5000 + b"}", "body", "has a number with too many digits"),
        (b'{"model": "a", "model": "b"}', "model", "is in one object twice"),
        (b'{"sourceLanguage": "a", "source_language": "b"}', "source_language", "is in one object twice"),
        ({"txts": []}, "txts", "is no field of TranslateRequest; did you mean texts?"),
        ({"options": {"beam": 2}}, "options.beam", "is no field of DecodingOptions; did you mean beamSize?"),
        ({"nonsense!": 1}, "nonsense!", "is no field of TranslateRequest"),
        ({"texts": "one"}, "texts", "must be a list"),
        ({"texts": ["one", 2]}, "texts[1]", "must be a string"),
        ({"texts": ["one", None]}, "texts[1]", "must be a string"),
        ({"options": 1}, "options", "must be an object"),
        ({"options": {"beamSize": "x"}}, "options.beamSize", "must be an integer of 32 bits"),
        ({"options": {"seed": -1}}, "options.seed", "must be an integer of 64 bits, not below 0"),
        ({"options": {"topP": "much"}}, "options.topP", "must be a number"),
        ({"options": {"earlyStopping": "yes"}}, "options.earlyStopping", "must be true or false"),
        ({"options": {"terminology": [{}, 7]}}, "options.terminology[1]", "must be an object"),
        ({"options": {"terminology": [{"sorce": ""}]}}, "options.terminology[0].sorce", "is no field of Term"),
        ({"format": "HTML"}, "format", "must be one of FORMAT_UNSPECIFIED, FORMAT_TEXT, FORMAT_HTML"),
        (b'{"texts": ["\\ud800"]}', "texts[0]", "is no Unicode text: it has half of a surrogate pair"),
        (b'{"\\ud800": 1}', "body", "has a name that is no Unicode text"),
        (b'{"format": "\\ud800"}', "format", "must be one of FORMAT_UNSPECIFIED"),
        (b'{"options":{"terminology":[' + b"{}," * 300_000 + b"{}]}}", "body", f"has more than {MANY} JSON values"),
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


@pytest.mark.parametrize("texts", [["a"] * 256, ['a, \\ "b", ' * 20_000]], ids=["many texts", "commas of a text"])
def test_what_has_no_more_values_than_a_request_may_have_is_read(texts):
    assert read({"texts": texts}).texts == texts


def test_a_body_that_nobody_waits_for_any_more_is_not_read_on():
    budget = Budget()
    budget.end()
    with pytest.raises(WorkEndedError):
        read_json(b"{}", pb.TranslateRequest, 256, budget)


def test_every_code_has_a_status_of_errors():
    for number, _ in (code.value for code in grpc.StatusCode):
        assert 400 <= RefusedError(status_pb2.Status(code=number)).http_status < 600
    assert RefusedError(status_pb2.Status(code=99)).http_status == 500
    assert {RefusedError(status_pb2.Status(code=code.value[0])).http_status for code in CODES.values()} == {
        *(400, 401, 404, 429, 500, 503, 504)
    }
    assert RefusedError(status_of(QueueFullError("full", retry_after=1.2))).headers["retry-after"] == "2"


# `/status.json`: what ListModels lists, with the figures of the metrics.


LISTED = pb.ListModelsResponse(
    models=[
        pb.Model(name="a", version="3", source_languages=["zh"], state=pb.MODEL_STATE_READY, parameters=7),
        pb.Model(name="new", state=pb.MODEL_STATE_LOADING),
    ],
    server_version="1.2.3",
)


def test_a_report_has_the_models_and_their_load():
    metrics = Metrics()
    metrics.watch_calls(lambda: 3, lambda: 100, 7)
    metrics.rejected.labels("QUEUE_FULL").inc(2)
    metrics.rejected.labels("INVALID_FIELD").inc()
    model = metrics.of_model("a")
    metrics.of_model("gone")
    model.watch(FakeDecoder(rows=8, active_rows=5, waiting=4, waiting_limit=64), [])
    model.memory = 2**20
    for seconds, code in ((0.25, "OK"), (0.5, "OK"), (9.0, "INTERNAL")):
        model.answered(code, "grpc", seconds)
    model.generated_tokens.inc(12)
    model.observe(StepStats([(0.1, 9)], [0.1, 0.2, 0.3], steps=[], moves=[], first_token_times=[]))
    content = status_report(LISTED, metrics, 12.3456)
    first, second = content["models"]
    assert first.pop("load") == {
        "rowsBusy": 5,
        "rowsLimit": 8,
        "sentencesWaiting": 4,
        "sentencesWaitingLimit": 64,
        "memoryBytes": 2**20,
        "requests": 2,
        "requestSeconds": 0.75,
        "sentences": 3,
        "sourceTokens": 9,
        "generatedTokens": 12,
    }
    assert set(second.pop("load").values()) == {0}
    assert content.pop("identifiesLanguages") == can_identify()
    figures = {name: content.pop(name) for name in ("uptimeSeconds", "openCalls", "openCallsLimit", "refused")}
    assert figures == {"uptimeSeconds": 12.346, "openCalls": 3, "openCallsLimit": 7, "refused": 3}
    assert json_format.ParseDict(content, pb.ListModelsResponse()) == LISTED
    model.unwatch()
    assert status_report(LISTED, metrics, 13.0)["models"][0]["load"]["rowsLimit"] == 0
    assert status_report(pb.ListModelsResponse(), Metrics(), 0.0)["models"] == []


# The OpenAPI document: valid, and of every method, message, field and enum of the protocol.


DOCUMENT = json.loads(files("translane_server.http").joinpath("openapi.json").read_text(encoding="utf-8"))
SCHEMAS = DOCUMENT["components"]["schemas"]
SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"]
MESSAGES = pb.DESCRIPTOR.message_types_by_name
KEYS = ("type", "format", "items", "$ref")
SCALARS: dict[int, dict[str, object]] = {
    Field.TYPE_BOOL: {"type": "boolean"},
    Field.TYPE_INT32: {"type": "integer", "format": "int32"},
    Field.TYPE_INT64: {"type": ["string", "integer"], "format": "int64"},
    Field.TYPE_UINT64: {"type": ["string", "integer"], "format": "uint64"},
    Field.TYPE_FLOAT: {"type": "number", "format": "float"},
    Field.TYPE_DOUBLE: {"type": "number", "format": "double"},
    Field.TYPE_BYTES: {"type": "string", "format": "byte"},
}


def valid(name, instance):
    resource = Resource.from_contents(DOCUMENT, default_specification=DRAFT202012)
    registry = Registry().with_resource("urn:document", resource)
    schema = {"$ref": f"urn:document#/components/schemas/{name}"}
    return OAS31Validator(schema, registry=registry).is_valid(instance)


def test_the_document_is_valid():
    validate(DOCUMENT)


def kind_of(schema):
    """What a schema says of its type, without what is said to people."""
    return {key: kind_of(value) if key == "items" else value for key, value in schema.items() if key in KEYS}


def kind_of_field(field):
    """What the schema of a field has to say of its type, by the rules of protobuf's JSON."""
    kind: dict[str, object]
    if field.message_type and field.message_type.GetOptions().map_entry:
        return {"type": "object"}
    named = field.message_type or field.enum_type
    if named is not None and named.full_name != "google.protobuf.Duration":
        kind = {"$ref": f"#/components/schemas/{named.name}"}
    else:
        kind = SCALARS.get(field.type, {"type": "string"})
    return {"type": "array", "items": kind} if field.is_repeated else kind


def test_it_has_every_method():
    assert DOCUMENT["paths"].keys() == {*PATHS.values(), "/healthz"}
    for method in SERVICE.methods:
        item = DOCUMENT["paths"][PATHS[method.name]]
        operation = item.get("post") or item["get"]
        kind = "application/x-ndjson" if method.server_streaming else "application/json"
        answered = operation["responses"]["200"]["content"][kind]["schema"]
        assert answered == {"$ref": f"#/components/schemas/{method.output_type.name}"}
        if method.name == "TranslateDocument":
            assert operation["requestBody"]["content"].keys() == KINDS.keys()
        elif "post" in item:
            asked = operation["requestBody"]["content"]["application/json"]["schema"]
            assert asked == {"$ref": f"#/components/schemas/{method.input_type.name}"}


@pytest.mark.parametrize("name", sorted(set(MESSAGES) - {"ListModelsRequest", "TranslateDocumentRequest"}))
def test_it_has_every_field(name):
    properties = SCHEMAS[name]["properties"]
    fields = {field.json_name: kind_of_field(field) for field in MESSAGES[name].fields}
    assert {name: kind_of(schema) for name, schema in properties.items()} == fields


def test_it_has_every_value_of_an_enum():
    for name, enum in pb.DESCRIPTOR.enum_types_by_name.items():
        assert SCHEMAS[name]["type"] == "string"
        assert SCHEMAS[name]["enum"] == [value.name for value in enum.values]


def test_schemas_take_what_protobuf_writes():
    request = pb.TranslateRequest(texts=["a"], format=pb.FORMAT_HTML, options={"seed": 2**64 - 1, "top_p": 0.5})
    assert valid("TranslateRequest", json_format.MessageToDict(request))
    answer = pb.TranslateResponse(translations=[{"hypotheses": [{"text": "b", "score": -1}]}])
    answer.timing.total.FromMicroseconds(1500)
    answer.model_versions["m"] = "1@5f1c0a9b3e21"
    assert valid("TranslateResponse", json_format.MessageToDict(answer))


@pytest.mark.parametrize("wrong", [{"texts": "a"}, {"txts": []}, {"format": "HTML"}, {"options": {"beamSize": "4"}}])
def test_schemas_refuse_what_the_server_refuses(wrong):
    assert not valid("TranslateRequest", wrong)

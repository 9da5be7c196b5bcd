"""The OpenAPI document: valid, and of every method, message, field and enum of the protocol."""

import json
from importlib.resources import files

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor as Field
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from helpers.http_calls import PATHS
from translane.v1 import translation_pb2 as pb
from translane_server.text.documents import KINDS

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

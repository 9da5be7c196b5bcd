"""The OpenAPI document: valid, and of every method, message, field and enum of the protocol."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from google.protobuf import json_format
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from translane.v1 import translation_pb2 as pb

DOCUMENT = json.loads(files("translane_server.http").joinpath("openapi.json").read_text(encoding="utf-8"))
SCHEMAS = DOCUMENT["components"]["schemas"]
PROTO = Path(__file__).parents[4] / "protos/translane/v1/translation.proto"
SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"]
MESSAGES = pb.DESCRIPTOR.message_types_by_name


def valid(name, instance):
    resource = Resource.from_contents(DOCUMENT, default_specification=DRAFT202012)
    registry = Registry().with_resource("urn:document", resource)
    schema = {"$ref": f"urn:document#/components/schemas/{name}"}
    return OAS31Validator(schema, registry=registry).is_valid(instance)


def test_the_document_is_valid():
    validate(DOCUMENT)


def test_it_has_every_method():
    for method in SERVICE.methods:
        operation = DOCUMENT["paths"][f"/{SERVICE.full_name}/{method.name}"]["post"]
        kind = "application/x-ndjson" if method.server_streaming else "application/json"
        asked = operation["requestBody"]["content"]["application/json"]["schema"]
        answered = operation["responses"]["200"]["content"][kind]["schema"]
        assert asked == {"$ref": f"#/components/schemas/{method.input_type.name}"}
        assert answered == {"$ref": f"#/components/schemas/{method.output_type.name}"}
    assert len([path for path in DOCUMENT["paths"] if SERVICE.full_name in path]) == len(SERVICE.methods)


@pytest.mark.parametrize("name", MESSAGES)
def test_it_has_every_field(name):
    properties = SCHEMAS[name]["properties"]
    assert list(properties) == [field.json_name for field in MESSAGES[name].fields]
    for field in MESSAGES[name].fields:
        schema = properties[field.json_name]
        assert (schema.get("type") == "array") == field.is_repeated
        item = schema.get("items", schema)
        if field.message_type is not None and field.message_type.file.name == pb.DESCRIPTOR.name:
            assert item["$ref"] == f"#/components/schemas/{field.message_type.name}"


def test_it_has_every_value_of_an_enum():
    for name, enum in pb.DESCRIPTOR.enum_types_by_name.items():
        assert SCHEMAS[name]["enum"] == [value.name for value in enum.values]


def test_descriptions_are_the_comments_of_the_proto():
    said = " ".join(" ".join(re.findall(r"// ?(.*)", PROTO.read_text(encoding="utf-8"))).split())
    for name in MESSAGES:
        for schema in (SCHEMAS[name], *SCHEMAS[name]["properties"].values()):
            assert " ".join(schema.get("description", "").split()) in said
    assert SCHEMAS["DecodingOptions"]["properties"]["beamSize"]["description"].startswith("Number of beams;")


def test_schemas_take_what_protobuf_writes():
    request = pb.TranslateRequest(texts=["a"], format=pb.FORMAT_HTML, options={"seed": 2**64 - 1, "top_p": 0.5})
    assert valid("TranslateRequest", json_format.MessageToDict(request))
    answer = pb.TranslateResponse(translations=[{"hypotheses": [{"text": "b", "score": -1}]}])
    answer.timing.total.FromMicroseconds(1500)
    assert valid("TranslateResponse", json_format.MessageToDict(answer))


@pytest.mark.parametrize("wrong", [{"texts": "a"}, {"txts": []}, {"format": "HTML"}, {"options": {"beamSize": "4"}}])
def test_schemas_refuse_what_the_server_refuses(wrong):
    assert not valid("TranslateRequest", wrong)

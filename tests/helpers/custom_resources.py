"""Schemas of kinds that Kubernetes itself does not have: what the chart uses of them, by the sources named below.

No package has the Gateway API's. KEDA's are in cloudcoil-models-keda, as classes and with a client of Kubernetes: much
for one manifest. The schemas here have the fields that the chart writes, and no others, so a misspelt field is found. A
new field in the chart takes a look into the source, and a line here.
"""

from typing import Any

Schema = dict[str, Any]

_NAME: Schema = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 253}
_HOSTNAMES: Schema = {
    "type": "array",
    "minItems": 1,
    "maxItems": 16,
    "items": {"type": "string", "pattern": r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"},
}


def _object(required: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": properties,
    }


def _list(item: Schema, most: int) -> Schema:
    return {"type": "array", "minItems": 1, "maxItems": most, "items": item}


def _kind(version: str, kind: str, spec: Schema) -> Schema:
    metadata = _object("name", name=_NAME, labels={"type": "object", "additionalProperties": {"type": "string"}})
    return _object(
        "apiVersion kind metadata spec",
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


def _route(rule: Schema) -> Schema:
    parent = _object("name", name=_NAME, namespace=_NAME, sectionName=_NAME)
    return _object("parentRefs rules", parentRefs=_list(parent, 32), hostnames=_HOSTNAMES, rules=_list(rule, 16))


_BACKENDS = _list(_object("name port", name=_NAME, port={"type": "integer", "minimum": 1, "maximum": 65535}), 16)
# https://gateway-api.sigs.k8s.io/reference/spec/#grpcroutespec
_GRPC_MATCH = _object("method", method=_object("service", service={"type": "string", "pattern": r"^[a-zA-Z0-9_.]+$"}))
# https://gateway-api.sigs.k8s.io/reference/spec/#httproutespec
_HTTP_MATCH = _object(
    "path", path=_object("type value", type={"const": "PathPrefix"}, value={"type": "string", "pattern": "^/.*[^/]$"})
)
_TIMEOUTS = _object("request", request={"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"})

# https://keda.sh/docs/latest/reference/scaledobject-spec/ and https://keda.sh/docs/latest/scalers/prometheus/
_TEXT: Schema = {"type": "string", "minLength": 1}
_NUMBER_AS_TEXT: Schema = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}
_PROMETHEUS = _object(
    "serverAddress query threshold",
    serverAddress=_TEXT,
    query=_TEXT,
    threshold=_NUMBER_AS_TEXT,
    ignoreNullValues={"enum": ["true", "false"]},
)
_TRIGGER = _object(
    "type metadata",
    type={"const": "prometheus"},
    name=_TEXT,
    metricType={"enum": ["AverageValue", "Value"]},
    metadata=_PROMETHEUS,
)
_COUNT: Schema = {"type": "integer", "minimum": 1}
_SCALED_OBJECT = _object(
    "scaleTargetRef triggers",
    scaleTargetRef=_object("name", name=_NAME),
    minReplicaCount=_COUNT,
    maxReplicaCount=_COUNT,
    # The behaviour is that of Kubernetes's own autoscaler.
    advanced=_object(
        "horizontalPodAutoscalerConfig",
        horizontalPodAutoscalerConfig=_object("behavior", behavior={"type": "object"}),
    ),
    triggers=_list(_TRIGGER, 10),
)

SCHEMAS: dict[str, Schema] = {
    "GRPCRoute": _kind(
        "gateway.networking.k8s.io/v1",
        "GRPCRoute",
        _route(_object("matches backendRefs", matches=_list(_GRPC_MATCH, 64), backendRefs=_BACKENDS)),
    ),
    "HTTPRoute": _kind(
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        _route(
            _object("matches backendRefs", matches=_list(_HTTP_MATCH, 64), timeouts=_TIMEOUTS, backendRefs=_BACKENDS)
        ),
    ),
    "ScaledObject": _kind("keda.sh/v1alpha1", "ScaledObject", _SCALED_OBJECT),
}
"""The schema of a manifest, by its kind."""

"""Server reflection in both of its versions, which tell callers what the services of a port take and answer.

Newer callers ask for `grpc.reflection.v1`, and older ones only for `grpc.reflection.v1alpha`. The messages of both are
the same (https://github.com/grpc/grpc/blob/master/doc/server-reflection.md), so one servicer answers both.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pool, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2

from translane_server.api.call import Call, Write
from translane_server.api.grpc_port import GrpcPort

_V1 = "grpc.reflection.v1.ServerReflection"
_METHOD = "ServerReflectionInfo"


def enable_reflection(services: Sequence[str], port: GrpcPort) -> None:
    """Let `port` describe `services`, and reflection itself."""
    names = (*services, _V1, reflection.SERVICE_NAME)
    servicer = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]  # it is exported

    async def describe(requests: AsyncIterable[Any], _call: Call, write: Write) -> None:
        async for answer in servicer.ServerReflectionInfo(requests, None):
            await write(answer)

    handler = grpc.stream_stream_rpc_method_handler(
        describe,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for service in (_V1, reflection.SERVICE_NAME):
        port.add_registered_method_handlers(service, {_METHOD: handler})


def _describe_v1() -> None:
    """Make the description of v1 from that of v1alpha, because grpcio-reflection has the older one alone."""
    file = FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    written = text_format.MessageToString(file).replace("v1alpha", "v1")
    descriptor_pool.Default().AddSerializedFile(text_format.Parse(written, FileDescriptorProto()).SerializeToString())


_describe_v1()  # once in a process, as generated modules do

import asyncio

import grpc

from benchmarks.engines.callers import PATH, call
from translane.v1 import translation_pb2 as pb


async def run(connections, calls):
    """Call a server that answers nothing until the calls of all connections have been open together."""
    peers, most, together, all_open = set(), 0, 0, asyncio.Event()

    async def translate(request, context):
        nonlocal most, together
        assert len(pb.TranslateRequest.FromString(request).texts) == 1
        peers.add(context.peer())
        together += 1
        most = max(most, together)
        if together == connections * calls:
            all_open.set()
        await asyncio.wait_for(all_open.wait(), 30)
        await asyncio.sleep(0.001)
        together -= 1
        return b""

    _, service, method = PATH.split("/")
    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(translate)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    told = await call(f"127.0.0.1:{port}", 0.1, connections, calls)
    await server.stop(None)
    return len(peers), most, told


def test_so_many_connections_have_so_many_calls_open():
    peers, most, told = asyncio.run(run(3, 4))
    assert peers == 3
    assert most == 12
    assert len(told.waits) >= 12
    assert told.seconds >= 0.1
    assert min(told.waits) >= 0.001

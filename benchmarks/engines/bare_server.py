"""A gRPC server that returns its messages and does nothing else: what gRPC alone costs a call.

    python -m benchmarks.engines.bare_server --port 50051

It receives messages in the same form as Translane's server, and has no interceptor and no options.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import grpc


async def echo(_messages: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
    """Return the first message of a call."""
    return await context.read()


async def serve(port: int) -> None:
    """Serve `/bare/Echo`, for ever."""
    running = grpc.aio.server()
    handlers = {"Echo": grpc.stream_unary_rpc_method_handler(echo)}
    running.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    running.add_insecure_port(f"127.0.0.1:{port}")
    await running.start()
    await running.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()

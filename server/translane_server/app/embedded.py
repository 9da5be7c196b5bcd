"""A server within another program, which forwards calls to it: the same service, limits and models, without ports."""

from __future__ import annotations

import asyncio

from translane_server.access.guard import Guard
from translane_server.api.forwarded import PEER, SECRET
from translane_server.app.server import Server
from translane_server.forwarding.forwarder import Forwarder, Metadata
from translane_server.forwarding.private_socket import PrivateSocket
from translane_server.models.build import build_registry
from translane_server.observation.call_trace import Tracer
from translane_server.observation.metrics import Metrics
from translane_server.settings.server_settings import ServerSettings


class EmbeddedServer:
    """A server that listens on a unix socket which only this process knows. `start` makes one.

    It belongs to the event loop that it was started in. It takes no signals, and its settings of addresses, ports and
    TLS count for nothing.

    Attributes:
        server: the server.
        address: gRPC's name of the socket, for any client of gRPC within this process.
        forwarder: calls methods of the server with messages in binary form.
    """

    def __init__(self, server: Server, door: PrivateSocket, streams: int) -> None:
        self.server = server
        self.address = door.address
        self.forwarder = Forwarder(door.address, streams)
        self._secret = door.secret

    @classmethod
    async def start(
        cls, settings: ServerSettings, *, cpus: int | None = None, tracer: Tracer | None = None
    ) -> EmbeddedServer:
        """Load all models of `settings`, and listen.

        Args:
            settings: settings of the server.
            cpus: number of CPUs of all models; by default the CPUs that this process may use.
            tracer: begins the spans of calls; None if calls are not traced.

        Raises:
            StartupError: a model cannot be loaded, the file of keys is wrong, or there is no place for the socket.
        """
        metrics = Metrics()
        # On a thread, because files are read and checked, and the program around the server goes on meanwhile.
        registry = await asyncio.to_thread(build_registry, settings, metrics, cpus)
        guard = Guard(settings, metrics)
        door = PrivateSocket()
        server = Server(settings, registry, metrics, tracer, guard=guard, door=door)
        try:
            await server.open()
            await server.start()
        except BaseException:
            await server.stop(grace=0)
            raise
        return cls(server, door, settings.max_streams)

    def metadata_for(self, peer: str) -> Metadata:
        """Return what a forwarded call shows, so that the server counts it as a call of `peer`.

        Args:
            peer: gRPC's name of the caller's end of its connection, such as `ipv4:10.0.0.1:4321`.
        """
        return [(SECRET, self._secret), (PEER, peer)]

    async def stop(self, grace: float) -> bool:
        """Refuse new translations, finish the accepted ones for `grace` seconds at most, and end.

        Returns:
            Whether all accepted translations were finished.
        """
        drained = await self.server.stop(grace)
        await self.forwarder.close()
        return drained

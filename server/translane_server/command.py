"""Runs `translane-server`: loads settings and bundle, starts the server, waits for a signal, and drains."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from translane_server.bundle import Bundle
from translane_server.bundle_choice import choose_bundle
from translane_server.dispatch.dispatcher import Dispatcher
from translane_server.dispatch.plan import plan_replicas
from translane_server.dispatch.processes import process_hosts
from translane_server.dispatch.replica_connection import ReplicaConnection
from translane_server.errors import StartupError
from translane_server.logs import configure_logging
from translane_server.metrics import Metrics
from translane_server.replica.setup import ModelSetup, ReplicaSetup
from translane_server.rpc.service import ServedModel
from translane_server.server import Server
from translane_server.settings import ENV_PREFIX, ServerSettings, TokenLimits
from translane_server.settings_loader import load_settings
from translane_server.text.tokenizer import load_tokenizer
from translane_server.vocabulary import TargetVocabulary

_PROG = "translane-server"
_log = logging.getLogger(__name__)


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code.

    If the server cannot start, one sentence on standard error says why.

    Args:
        argv: command-line arguments, without the name of the program.
        environ: environment variables.
    """
    try:
        settings = load_settings(ServerSettings, argv, environ, prog=_PROG, env_prefix=ENV_PREFIX)
        configure_logging(settings.log_format, settings.log_level)
        bundle, device = choose_bundle(settings.model, settings.device)
        model = ServedModel(bundle.manifest, load_tokenizer(bundle), device)
        return asyncio.run(_serve(settings, bundle, model))
    except StartupError as error:
        print(f"{_PROG}: {error}", file=sys.stderr)
        return error.exit_code


class _Signals:
    """Handles SIGTERM and SIGINT. The first signal sets `stop`, the second sets `hurry`, and a third kills."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.number = 0
        self._loop = loop
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received, number)

    def _received(self, number: int) -> None:
        self.number = number
        if self.stop.is_set():
            self.hurry.set()
            for each in (signal.SIGTERM, signal.SIGINT):
                self._loop.remove_signal_handler(each)
        self.stop.set()


async def _serve(settings: ServerSettings, bundle: Bundle, model: ServedModel) -> int:
    signals = _Signals(asyncio.get_running_loop())
    server = Server(settings, model)
    try:
        await server.start()
        dispatcher = build_dispatcher(settings, bundle, model, server.limits.tokens, server.metrics)
        opening = asyncio.create_task(server.open(dispatcher))
        stopping = asyncio.create_task(signals.stop.wait())
        await asyncio.wait([opening, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()  # no request was accepted yet
            await server.stop(grace=0)
            return 0
        await opening
        failing = asyncio.create_task(server.failed.wait())
        await asyncio.wait([stopping, failing], return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            await server.stop(grace=0)
            return 1  # the supervisor of the process restarts it
        failing.cancel()
    except BaseException:
        await server.stop(grace=0)
        raise
    _log.info("%s: finishing what is running", signal.Signals(signals.number).name)
    drained = await server.stop(settings.grace_period, signals.hurry)
    if signals.hurry.is_set():
        _log.warning("stopped at once")
        return 128 + signals.number
    if not drained:
        _log.warning("stopped after the grace period of %g seconds, with requests unfinished", settings.grace_period)
    else:
        _log.info("stopped; every accepted request is answered")
    return 0


def build_dispatcher(
    settings: ServerSettings, bundle: Bundle, model: ServedModel, tokens: TokenLimits, metrics: Metrics
) -> Dispatcher:
    """Make the dispatcher and the replicas that decode with `bundle`. They are not started."""
    plan = plan_replicas(settings, bundle.manifest.architecture.parameters, model.device)
    _log.info("replicas: %d, of %d threads each", len(plan.rows), plan.threads)
    ids = bundle.manifest.special_ids
    vocabulary = TargetVocabulary(ids.decoder_start, ids.eos, model.tokenizer.target_surfaces)
    setup = ModelSetup(
        bundle=bundle,
        device=model.device,
        threads=plan.threads,
        source_capacity=tokens.source,
        target_capacity=tokens.target,
        encode_tokens=settings.encode_tokens,
        log_format=settings.log_format,
        log_level=settings.log_level,
    )
    hosts = process_hosts(len(plan.rows), plan.threads)
    metrics.watch_replicas([partial(getattr, host, "pid") for host in hosts])
    replicas = [
        ReplicaConnection(ReplicaSetup(number, rows, vocabulary, setup), host)
        for number, (rows, host) in enumerate(zip(plan.rows, hosts, strict=True))
    ]
    return Dispatcher(replicas, waiting_limit=settings.sentences_waiting, observe=metrics.observe)

"""CTranslate2 behind Translane's protocol: what the serving benchmark compares with.

    python -m benchmarks.engines.ctranslate2_server \\
        --model runs/bench/models/demo-fp32-ctranslate2 --bundle models/zh-en

A server as one would write it around the library: the server gathers requests into batches (see `DynamicBatcher`), and
several batches are under way at a time. The tokenizers are those of the bundle that the model was converted from.
The server answers `Translate` with the options beam_size and max_length; other options have no effect.

CTranslate2 knows one max_length for a whole batch. In greedy search, a callback ends each sentence at the sentence's
own max_length, and the sentence leaves the batch. Beams have no callback: batches hold sentences of similar max_length
and go on to the largest one, and the server cuts off what is beyond a sentence's own.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from benchmarks.engines.ctranslate2_decoder import translator_of, vocabularies
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_server.bundle.bundle import load_bundle
from translane_server.text.tokenizer import load_tokenizer

WAITING_LIMIT = 1024  # as Translane's


@dataclass(eq=False)
class Entry:
    """A sentence that waits, and where its result goes."""

    source: list[str]
    max_length: int
    beam_size: int
    since: float
    result: asyncio.Future[Any] = field(repr=False)


class DynamicBatcher:
    """Hands batches of one beam size to `translate`, which blocks, on as many threads as batches may be under way.

    A batch goes as soon as there is room for it and either `size` sentences wait or the oldest has waited for `wait`
    seconds. While there is no room, sentences gather. Where there is room for several batches, what waits is shared
    among them, sorted by length, so that all workers have work and a batch's sentences end together.
    """

    def __init__(
        self, translate: Callable[[Sequence[Entry]], Sequence[Any]], *, size: int, wait: float, under_way: int
    ) -> None:
        self._translate = translate
        self._size = size
        self._wait = wait
        self._room = under_way
        self._threads = ThreadPoolExecutor(under_way)
        self._waiting: list[Entry] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, entries: Sequence[Entry]) -> None:
        """Take sentences, whose futures get the results."""
        self._waiting += entries
        self._go()

    def _go(self) -> None:
        """Begin the batches that can begin now, and see to it that the others begin in time."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._waiting = [entry for entry in self._waiting if not entry.result.done()]  # the caller has gone
        loop = asyncio.get_running_loop()
        while self._waiting and self._room:
            left = self._waiting[0].since + self._wait - loop.time()
            if len(self._waiting) < self._size and left > 0:
                self._timer = loop.call_later(left, self._go)
                return
            for batch in self._cut():
                self._room -= 1
                task = loop.create_task(self._run(batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _cut(self) -> list[list[Entry]]:
        """Take out the oldest waiting sentences of one beam size, as a batch for each free place."""
        beam_size = self._waiting[0].beam_size
        taken = [entry for entry in self._waiting if entry.beam_size == beam_size][: self._size * self._room]
        gone = set(map(id, taken))
        self._waiting = [entry for entry in self._waiting if id(entry) not in gone]
        taken.sort(key=lambda entry: (entry.max_length, len(entry.source)), reverse=True)
        count = min(self._room, len(taken))
        bounds = [len(taken) * number // count for number in range(count + 1)]
        return [taken[first:last] for first, last in itertools.pairwise(bounds)]

    async def _run(self, batch: list[Entry]) -> None:
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._threads, self._translate, batch)
        except Exception as error:  # noqa: BLE001 - the callers are told of any error
            for entry in batch:
                if not entry.result.done():
                    entry.result.set_exception(error)
        else:
            for entry, result in zip(batch, results, strict=True):
                if not entry.result.done():
                    entry.result.set_result(result)
        self._room += 1
        self._go()


class BatchTranslator:
    """CTranslate2 on a converted model: batches of token ids to token ids."""

    def __init__(self, model: Path, *, workers: int, threads: int, compute_type: str) -> None:
        self._translator = translator_of(model, workers=workers, threads=threads, compute_type=compute_type)
        self.source_tokens, target_tokens = vocabularies(model)
        self._ids = {token: number for number, token in enumerate(target_tokens)}

    def translate(self, batch: Sequence[Entry]) -> list[list[int]]:
        """The best translation of each, without its end."""
        lengths = [entry.max_length for entry in batch]
        options: dict[str, Any] = {}
        if batch[0].beam_size == 1 and min(lengths) < max(lengths):
            options["callback"] = lambda step: step.step + 1 >= lengths[step.batch_id]
        results = self._translator.translate_batch(
            [entry.source for entry in batch],
            beam_size=batch[0].beam_size,
            max_decoding_length=max(lengths),
            min_decoding_length=0,
            return_scores=False,
            **options,
        )
        return [
            [self._ids[token] for token in result.hypotheses[0][: entry.max_length]]
            for entry, result in zip(batch, results, strict=True)
        ]


class Service(translation_pb2_grpc.TranslationServiceServicer):
    """The part of the protocol that the comparison needs."""

    def __init__(self, bundle_folder: Path, translator: BatchTranslator, batcher: DynamicBatcher) -> None:
        bundle = load_bundle(bundle_folder)
        self._name = bundle.manifest.name
        self._source_languages = bundle.manifest.source_languages
        self._tokenizer = load_tokenizer(bundle)
        self._max_length = bundle.manifest.decoding_defaults.max_length
        self._ctranslate2 = translator
        self._batcher = batcher

    async def Translate(self, request: pb.TranslateRequest, context: Any) -> pb.TranslateResponse:  # noqa: N802
        if len(self._batcher) + len(request.texts) > WAITING_LIMIT:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many sentences wait")
        loop = asyncio.get_running_loop()
        names, options = self._ctranslate2.source_tokens, request.options
        sources = [[names[number] for number in ids] for ids in self._tokenizer.encode(list(request.texts))]
        entries = [
            Entry(
                source,
                options.max_length or self._max_length,
                options.beam_size or 1,
                loop.time(),
                loop.create_future(),
            )
            for source in sources
        ]
        self._batcher.add(entries)
        try:
            found = [await entry.result for entry in entries]
        finally:
            for entry in entries:
                entry.result.cancel()  # nobody waits for the results of a caller that has gone
        return pb.TranslateResponse(
            translations=[
                pb.Translation(hypotheses=[pb.Hypothesis(text=text)], source_tokens=len(source))
                for text, source in zip(self._tokenizer.decode(found), sources, strict=True)
            ],
            model=self._name,
        )

    async def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:  # noqa: ARG002, N802
        return pb.ListModelsResponse(
            models=[pb.Model(name=self._name, source_languages=self._source_languages)],
            limits=pb.Limits(max_request_texts=WAITING_LIMIT, max_queue_size=WAITING_LIMIT),
        )


async def serve(arguments: argparse.Namespace) -> None:
    translator = BatchTranslator(
        arguments.model, workers=arguments.workers, threads=arguments.threads, compute_type=arguments.compute_type
    )
    batcher = DynamicBatcher(
        translator.translate,
        size=arguments.batch_size,
        wait=arguments.wait / 1000,
        under_way=arguments.under_way or arguments.workers,
    )
    server = grpc.aio.server()
    service = Service(arguments.bundle, translator, batcher)
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port(f"127.0.0.1:{arguments.port}")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await server.stop(grace=1)
    os._exit(0)  # threads may be at work in the library, which has no way to end them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of the converted model")
    parser.add_argument(
        "--bundle", type=Path, required=True, help="Translane's bundle of the same model, for its tokenizers"
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--compute-type", default="float32")
    parser.add_argument("--workers", type=int, default=1, help="batches that are translated at once")
    parser.add_argument("--threads", type=int, default=0, help="of each worker")
    parser.add_argument("--batch-size", type=int, default=32, help="most sentences of a batch")
    parser.add_argument("--wait", type=float, default=0.0, help="longest wait for company [ms]")
    parser.add_argument(
        "--under-way", type=int, help="most batches translated or queued; by default as many as workers"
    )
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()

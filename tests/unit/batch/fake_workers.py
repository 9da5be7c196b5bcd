"""Workers without a model: a source's translation is the source in brackets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from translane_batch.answers import Answer, encoded
from translane_batch.reading import digest_of, sources_of
from translane_batch.settings import BatchSettings
from translane_batch.tasks import Task
from translane_batch.work_folder import WorkFolder
from translane_server.core.files import written_whole


def settings_of(**changes: Any) -> BatchSettings:
    """Settings of a run that nobody starts."""
    values: dict[str, Any] = {"corpus": Path("in"), "output": Path("out"), "model": "m"}
    return BatchSettings(**(values | changes))


def translation_of(source: str) -> Answer:
    """What the fake workers make of a source."""
    return Answer("", "refused", "it is bad") if "bad" in source else Answer(f"[{source}]")


class FakeWorkers:
    """Workers that translate at once. `translated` counts sources; after `most` tasks the next one is interrupted."""

    places = 2

    def __init__(self) -> None:
        self.work: WorkFolder
        self.translated: Counter[str] = Counter()
        self.most = 1 << 30
        self.closed = 0

    async def open(self, _settings: BatchSettings, work: WorkFolder) -> FakeWorkers:
        self.work = work
        return self

    async def translate(self, task: Task, done: Callable[[int], None]) -> None:
        await asyncio.sleep(0)
        if not self.most:
            raise InterruptedError("killed")
        self.most -= 1
        lines = sources_of(self.work, task)
        sources = [json.loads(line) for line in lines]
        self.translated.update(sources)
        with written_whole(self.work.translations(task)) as file:
            file.write(digest_of(lines))
            file.writelines(encoded(translation_of(source)) for source in sources)
        done(len(sources))

    async def close(self) -> None:
        self.closed += 1

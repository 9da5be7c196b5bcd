"""Workers without a model: a text's translation is the text in brackets."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from translane_batch.records import Answer
from translane_batch.run import Translate
from translane_batch.settings import BatchSettings
from translane_batch.store import Sources


def settings_of(**changes: Any) -> BatchSettings:
    """Settings of a run that nobody starts."""
    values: dict[str, Any] = {"corpus": Path("in"), "output": Path("out"), "model": "m"}
    return BatchSettings(**(values | changes))


def translation_of(source: str) -> Answer:
    """What the fake workers make of a text."""
    return Answer("", "refused", "it is bad") if "bad" in source else Answer(f"[{source}]")


class FakeWorkers:
    """Workers that translate at once. `translated` counts texts; after `most` of them the run is interrupted."""

    def __init__(self) -> None:
        self.translated: Counter[str] = Counter()
        self.most = 1 << 30
        self.opened = self.closed = 0

    @contextmanager
    def __call__(self, _settings: BatchSettings) -> Iterator[Translate]:
        self.opened += 1
        try:
            yield self.translate
        finally:
            self.closed += 1

    def translate(self, sources: Sources, done: Callable[[int], None]) -> None:
        for chunk in sources.left(3):
            for number, text in chunk:
                if not self.most:
                    raise InterruptedError("killed")
                self.most -= 1
                self.translated[text] += 1
                sources.save([(number, translation_of(text))])
                done(1)

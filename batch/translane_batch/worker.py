"""Translates tasks: with models of this process, or with servers elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack

from translane_batch.answers import encoded
from translane_batch.errors import BatchError
from translane_batch.filters import Filters
from translane_batch.model_identity import languages_of
from translane_batch.reading import digest_of, sources_of
from translane_batch.server_settings import server_settings
from translane_batch.settings import BatchSettings
from translane_batch.tasks import Task
from translane_batch.translator import TEXTS, Translator
from translane_batch.work_folder import WorkFolder
from translane_client.aio import AsyncClient
from translane_client.connection import Connection
from translane_client.retry import RetryPolicy
from translane_server.app.in_process import AsyncTranslator
from translane_server.core.cpus import available_cpus
from translane_server.core.files import written_whole

TASKS = 2
"""Tasks that a worker should have at once: the second one fills the rows that the end of the first one leaves."""

_LEAST_REQUESTS, _REQUESTS_OF_A_CPU = 8, 2
_RETRIES = RetryPolicy(attempts=30, longest_wait=600.0)  # some two minutes, in which servers come back


class Worker:
    """Translates tasks of one run, in the event loop that it was opened in. `open` makes one."""

    def __init__(self, work: WorkFolder, translator: Translator, opened: AsyncExitStack) -> None:
        self._work, self._translator, self._opened = work, translator, opened

    @classmethod
    async def open(cls, settings: BatchSettings, work: WorkFolder, cpus: int | None = None) -> Worker:
        """Load the model, or connect to the servers, and check that they take the settings.

        Args:
            settings: of the run.
            work: the folder of its state.
            cpus: number of CPUs; by default those that this process may use.

        Raises:
            BatchError: a setting is wrong.
            StartupError: the model cannot be loaded.
            TranslaneError: the servers do not answer.
        """
        async with AsyncExitStack() as opened:
            made = client_of(settings) if settings.server else AsyncTranslator(server_settings(settings), cpus=cpus)
            client: AsyncClient | AsyncTranslator = await opened.enter_async_context(made)
            models = (await client.server_info()).models
            filters = Filters(settings, languages_of(settings, models))
            requests = settings.requests or max(_LEAST_REQUESTS, _REQUESTS_OF_A_CPU * (cpus or available_cpus()))
            translator = Translator(client, settings, filters, requests)
            await translator.check()
            return cls(work, translator, opened.pop_all())

    async def translate(self, task: Task, done: Callable[[int], None] = lambda _: None) -> None:
        """Translate a task's sources, and write their answers. A task that is translated again has the same answers.

        Args:
            task: the task.
            done: called with the number of sources that are translated, as often as some are.

        Raises:
            BatchError: the file of the sources is damaged.
            TranslaneError: the sources cannot be translated.
            OSError: a file cannot be read or written.
        """
        lines = sources_of(self._work, task)
        answers = await self._translator.translate([json.loads(line) for line in lines], done)
        with written_whole(self._work.translations(task)) as file:
            file.write(digest_of(lines))
            file.writelines(map(encoded, answers))

    async def close(self) -> None:
        """End the models, or the connection. What is not written is lost."""
        await self._opened.aclose()


def client_of(settings: BatchSettings) -> AsyncClient:
    """Return a client of the servers that the settings name.

    Raises:
        BatchError: the address, or a file of the connection, is wrong.
    """
    try:
        connection = Connection(settings.server, ca=settings.ca, token_file=settings.token_file)
    except ValueError as error:
        raise BatchError(f"--server: {error}", exit_code=2) from None
    return AsyncClient(connection, retry=_RETRIES, batch_size=TEXTS, concurrency=1)

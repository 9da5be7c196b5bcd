"""The settings of the models that a worker loads."""

from __future__ import annotations

from pydantic import ValidationError

from translane_batch.settings import BatchSettings
from translane_server.core.errors import SettingsError
from translane_server.settings.loader import what_is_wrong
from translane_server.settings.server_settings import ServerSettings

_MAX_QUEUE_SIZE = 1 << 20  # the requests at once bound the sentences already


def server_settings(settings: BatchSettings) -> ServerSettings:
    """Return the settings of the models of this process.

    Raises:
        SettingsError: they contradict each other.
    """
    try:
        return ServerSettings(
            model=(settings.place,),
            model_cache=settings.model_cache,
            model_cache_bytes=settings.model_cache_bytes,
            device=settings.device,
            replicas=settings.replicas,
            threads=settings.threads,
            max_batch_size=settings.max_batch_size,
            max_queue_size=_MAX_QUEUE_SIZE,
            log_level="warning",
        )
    except ValidationError as error:
        raise SettingsError(what_is_wrong(error.errors()[0])) from None

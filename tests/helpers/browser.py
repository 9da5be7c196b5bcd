"""A headless Chromium of the system, and what a page that it shows must not do."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

# Debian's packages `chromium-headless-shell` and `chromium`.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")


@dataclass
class Seen:
    """What a page did.

    Attributes:
        complaints: what it wrote to the console, errors and violations of its policy among it.
    """

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)  # the addresses of its requests


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """A browser; playwright's `Browser`."""
    from playwright.async_api import async_playwright

    assert CHROMIUM is not None
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened(browser: Any, **options: Any) -> AsyncIterator[tuple[Any, Seen]]:
    """An empty page, playwright's `Page`, with a storage of its own. `options` are those of `new_context`."""
    context = await browser.new_context(**options)
    context.set_default_timeout(20_000)
    try:
        page = await context.new_page()
        seen = Seen()
        page.on("console", lambda message: seen.complaints.append(message.text))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        yield page, seen
    finally:
        await context.close()

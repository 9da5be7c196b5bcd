"""The status page in a real Chromium: what it shows, and what it never does."""

import asyncio
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from fakes.serving import make_model, serving
from helpers.browser import CHROMIUM, chromium, opened
from helpers.http_calls import call, request, until
from helpers.key_files import holder, key_file
from helpers.real_server import serving_bundle
from translane.v1 import translation_pb2 as pb
from translane_server.access.keys import make_token
from translane_server.bundle.bundle import load_bundle

pytest.importorskip("playwright")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="neither chromium-headless-shell nor chromium is installed"),
    pytest.mark.asyncio(loop_scope="module"),
]

DEMO = Path(__file__).parents[3] / "models/zh-en"
POLLING = 2_000  # milliseconds between two readings of the page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    async with chromium() as browser:
        yield browser


@asynccontextmanager
async def showing(running, browser, *, complains=False, **options):
    """The page of a server. Unless it `complains`, it must not write to the console. It must call no other server."""
    address = f"http://127.0.0.1:{running.server.http_port}/"
    async with opened(browser, **options) as (page, seen):
        await page.clock.install()
        await page.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))  # only tests let the page read again
        await page.goto(address)
        yield page
        assert {urlsplit(each).netloc for each in seen.requests} == {urlsplit(address).netloc}
        assert complains or seen.complaints == []


async def wait_for(page, selector, text):
    """Wait until an element has this text."""
    await page.locator(selector, has_text=re.compile(f"^{re.escape(text)}$")).first.wait_for()


async def read_again(page):
    """Let the page read the status once more."""
    async with page.expect_response("**/status.json"):
        await page.clock.run_for(POLLING)


def figure(page, name, place=".figures"):
    return page.locator(f'{place} [data-field="{name}"]').inner_text()


async def submit(page, text, **choices):
    for name, value in choices.items():
        await page.locator(f"#try [name={name}]").select_option(str(value))
    await page.get_by_label("Text", exact=True).fill(text)
    await page.get_by_role("button", name="Translate").click()


@pytest.mark.slow
async def test_it_shows_the_models(browser):
    async with serving(http_port=0) as running, showing(running, browser) as page:
        await wait_for(page, "#connection", "live")
        assert await page.title() == "Translane"
        assert await figure(page, "name", ".model") == "fake"
        assert await figure(page, "state", ".model") == "ready"
        facts = await figure(page, "facts", ".model")
        assert "Chinese (zh) → English (en)" in facts
        assert "version 2.1" in facts
        assert await figure(page, "rows", ".model") == "0 of 4"
        assert await figure(page, "waiting", ".model") == "0 of 64"


@pytest.mark.slow
async def test_figures_follow_the_load(browser):
    async with serving(http_port=0, rows=4) as running, showing(running, browser) as page:
        await wait_for(page, "#connection", "live")
        assert await figure(page, "requests") == "–"  # a rate takes two readings
        await read_again(page)
        await wait_for(page, '.figures [data-field="tokens"]', "0")
        running.backend.hold()
        calls = [asyncio.ensure_future(running.stub.Translate(pb.TranslateRequest(texts=["abc"]))) for _ in range(7)]
        await until(lambda: running.dispatcher.waiting == 3 and running.dispatcher.active_rows == 4)
        await read_again(page)
        await wait_for(page, '.model [data-field="rows"]', "4 of 4")
        await wait_for(page, '.model [data-field="waiting"]', "3 of 64")
        assert await page.get_by_label("Rows").evaluate("meter => [meter.value, meter.max]") == [4, 4]
        running.backend.release()
        await asyncio.gather(*calls)
        await read_again(page)
        await wait_for(page, '.model [data-field="rows"]', "0 of 4")
        for place in (".figures", ".model"):
            assert float(await figure(page, "requests", place)) > 0
            assert float(await figure(page, "tokens", place)) > 0
            assert re.fullmatch(r"[\d.]+ (ms|s)", await figure(page, "time", place))
        assert "7 requests" in await figure(page, "totals", ".model")
        assert len((await page.locator(".line").get_attribute("points")).split()) == 3


async def test_it_reads_nothing_while_it_is_hidden(browser):
    async with serving(http_port=0) as running, showing(running, browser) as page:
        await wait_for(page, "#connection", "live")
        await page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        labels = ("unary", "translane.v1.TranslationService", "ListModels", "OK")
        answered = running.server.metrics.handled.labels(*labels)._value
        await page.clock.run_for(POLLING)  # the timer that runs already finds the page hidden
        before = answered.get()
        await page.clock.run_for(10 * POLLING)
        assert answered.get() == before
        await page.evaluate("Object.defineProperty(document, 'hidden', {value: false})")
        async with page.expect_response("**/status.json"):
            await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


async def test_it_tells_that_the_server_is_gone(browser):
    async with serving(http_port=0) as running, showing(running, browser, complains=True) as page:
        await wait_for(page, "#connection", "live")
        await running.server.stop(grace=1)
        await page.clock.run_for(POLLING)
        await wait_for(page, "#connection", "no answer, trying again")


@pytest.mark.slow
async def test_translations_and_their_alignment(browser):
    text = "我有一只猫，它很喜欢吃鱼。"
    options = {"beamSize": 4, "numHypotheses": 3, "returnTokens": True, "returnAlignment": True}
    async with (
        serving_bundle(load_bundle(DEMO), max_batch_size=8, http_port=0) as running,
        showing(running, browser) as page,
    ):
        await wait_for(page, "#connection", "live")
        await submit(page, text, hypotheses=3)
        lines = page.locator("#hypotheses .words")
        await lines.nth(2).wait_for()
        answer = await call(running.server.http_port, "Translate", {"texts": [text], "options": options})
        (expected,) = answer.json["translations"]
        assert await lines.all_inner_texts() == [each["text"] for each in expected["hypotheses"]]
        best = expected["hypotheses"][0]
        assert f"score {best['score']:.3f}" in await page.locator("#hypotheses li").first.inner_text()
        assert await page.locator("#source").inner_text() == text

        pieces = [piece.replace("▁", "") for piece in expected["sourcePieces"]]
        word = lines.first.locator(".word").nth(3)
        assert await word.inner_text() == "cat"
        number = best["tokens"].index("▁cat")
        points = [each for each in best["alignment"]["points"] if each.get("targetToken", 0) == number]
        wanted = [pieces[each.get("sourceToken", 0)] for each in points]
        await word.hover()
        assert await page.locator("#source .aligned").all_inner_texts() == wanted == ["猫"]
        assert await lines.first.locator(".pointed").all_inner_texts() == ["cat"]
        assert re.fullmatch(r"cat ↔ 猫 \d+%", await page.locator("#alignment").inner_text())
        color = "element => getComputedStyle(element).backgroundColor"
        assert await page.locator("#source .aligned").evaluate(color) != "rgba(0, 0, 0, 0)"

        await page.locator("#source .word", has_text="猫").hover()  # the other way round, in each translation
        assert "cat" in await lines.first.locator(".aligned").all_inner_texts()
        assert await page.locator("#hypotheses li:has(.aligned)").count() >= 2

        await lines.first.locator(".word").first.focus()
        for _ in range(3):
            await page.keyboard.press("ArrowRight")
        assert await page.evaluate("document.activeElement.textContent") == "cat"
        assert await page.locator("#source .aligned").all_inner_texts() == ["猫"]


async def begin_stream(page, running, text):
    """Stream until some of the text is shown, and return it. The next steps wait."""
    await wait_for(page, "#connection", "live")
    await page.get_by_label("Show the text while it is decoded").check()
    assert await page.get_by_role("combobox", name="Translations").is_disabled()
    running.backend.hold()
    await submit(page, text)
    running.backend.release(3)
    line = page.locator("#hypotheses .words.growing:not(:empty)")
    await line.wait_for()
    return await line.inner_text()


@pytest.mark.slow
async def test_a_stream_arrives_in_pieces(browser):
    async with serving(http_port=0) as running, showing(running, browser) as page:
        begun = await begin_stream(page, running, "hello")
        assert "hello".startswith(begun)
        assert len(begun) <= 3
        running.backend.release()
        await page.locator(".growing").wait_for(state="detached")
        line = page.locator("#hypotheses .words")
        assert await line.inner_text() == "hello"
        assert await line.evaluate("line => line.childNodes.length") > 1  # each piece is a text of its own
        assert "in all" in await page.locator("#facts").inner_text()


@pytest.mark.slow
async def test_a_stream_can_be_stopped(browser):
    async with serving(http_port=0) as running, showing(running, browser) as page:
        begun = await begin_stream(page, running, "hello")
        await page.get_by_role("button", name="Stop").click()
        await page.get_by_role("button", name="Stop").wait_for(state="hidden")
        await until(lambda: not running.server._service._running)
        running.backend.release(1)
        await until(lambda: not running.dispatcher.active_rows)
        shown = await page.locator("#hypotheses .words").inner_text()
        assert shown.startswith(begun)
        assert len(shown) < len("hello")
        assert await page.locator("#problem").inner_text() == ""
        running.backend.release()


@pytest.mark.parametrize("streams", [False, True])
async def test_errors_have_the_servers_words(browser, streams):
    async with serving(http_port=0) as running, showing(running, browser, complains=True) as page:
        await wait_for(page, "#connection", "live")
        await page.get_by_label("Show the text while it is decoded").set_checked(streams)
        text = "a" * 5000
        refused = await call(running.server.http_port, "Translate", {"texts": [text]})
        await submit(page, text)
        problem = page.get_by_role("alert").filter(has_text=refused.reason)
        message = refused.json["message"]
        await problem.wait_for()
        assert (
            await problem.inner_text()
            == f"{message.replace('texts[0]', 'text') if streams else message} (INVALID_FIELD)"
        )


HOSTILE = "<img src=x onerror=alert(1)>"


async def test_what_looks_like_html_stays_text(browser):
    async def renamed(route):
        answer = await route.fetch()
        content = await answer.json()
        content["models"][0] |= {"name": HOSTILE, "version": HOSTILE, "sourceLanguages": [HOSTILE]}
        await route.fulfill(response=answer, json=content | {"serverVersion": HOSTILE})

    async def translated(route):
        words = {"text": HOSTILE, "tokens": ["▁<img", "▁src", "=", "x"]}
        await route.fulfill(json={"translations": [{"hypotheses": [words], "sourcePieces": [HOSTILE]}]})

    async with serving(http_port=0) as running, opened(browser) as (page, seen):
        await page.route("**/status.json", renamed)
        await page.route("**/v1/translate", translated)
        await page.goto(f"http://127.0.0.1:{running.server.http_port}/")
        await wait_for(page, '.model [data-field="name"]', HOSTILE)
        await submit(page, HOSTILE)
        await wait_for(page, "#hypotheses .words", HOSTILE)
        assert await page.locator("#source").inner_text() == HOSTILE
        assert HOSTILE in await page.locator("#version").inner_text()
        assert await page.locator("img").count() == 1  # the page's own
        await page.get_by_label("Show the text while it is decoded").check()
        await page.unroute("**/status.json")
        assert seen.complaints == []
        assert len([each for each in seen.requests if each.endswith("/x")]) == 0


async def test_no_script_makes_html_of_text(browser):
    async with serving(http_port=0) as running, showing(running, browser, complains=True) as page:
        await wait_for(page, "#connection", "live")
        with pytest.raises(Exception, match="TrustedHTML"):
            await page.evaluate("document.body.innerHTML = '<b>'")
        blocked = await page.evaluate(
            """() => new Promise((done) => {
                document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
                fetch("http://127.0.0.2:9/").catch(() => null);
            })"""
        )
        assert blocked == "connect-src"


@pytest.mark.slow
async def test_it_asks_for_a_key(browser, tmp_path):
    token = make_token()
    async with (
        serving(http_port=0, keys_file=key_file(tmp_path, ada=holder(token))) as running,
        showing(running, browser, complains=True) as page,
    ):
        refused = await request(running.server.http_port, "GET", "/status.json")
        assert (refused.status, refused.reason) == (401, "MISSING_KEY")
        await page.get_by_text("This server asks for a key").wait_for()
        assert "(MISSING_KEY)" in await page.locator("#key-problem").inner_text()
        assert await page.locator(".model").count() == 0
        for given, reason in (("a" * 43, "UNKNOWN_KEY"), (token, "")):
            await page.get_by_label("Key", exact=True).fill(given)
            await page.get_by_role("button", name="Use the key").click()
            if reason:
                await page.get_by_text(f"({reason})").wait_for()
        await wait_for(page, "#connection", "live")
        await submit(page, "hello")
        await wait_for(page, "#hypotheses .words", "hello")

        await page.reload()
        await wait_for(page, "#connection", "live")  # this tab knows the key
        stored = await page.evaluate("[document.cookie, localStorage.length, Object.values(sessionStorage)]")
        assert stored == ["", 0, [token]]
        assert token not in await page.content()
        await page.get_by_role("button", name="Forget the key").click()
        await page.get_by_text("This server asks for a key").wait_for()
        assert await page.evaluate("sessionStorage.length") == 0


# The contrast of a text to what is behind it: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio.
CONTRASTS = """() => {
    const light = (color) => {
        const [r, g, b] = color.match(/[\\d.]+/g).map(Number).slice(0, 3).map((value) => {
            const share = value / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        const color = getComputedStyle(element).backgroundColor;
        return /, 0\\)$/.test(color) && element.parentElement ? behind(element.parentElement) : color;
    };
    return [...document.querySelectorAll("body *")]
        .filter((each) => each.checkVisibility() && [...each.childNodes].some((node) => node.data?.trim()))
        .map((each) => {
            const [a, b] = [light(getComputedStyle(each).color), light(behind(each))];
            return [each.outerHTML.slice(0, 60), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
        })
        .filter(([, ratio]) => ratio < 4.5);
}"""


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
async def test_light_and_dark(browser, scheme, is_dark):
    async with serving(http_port=0) as running, showing(running, browser, color_scheme=scheme) as page:
        await wait_for(page, "#connection", "live")
        await submit(page, "hello")
        await wait_for(page, "#hypotheses .words", "hello")
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) < 3 * 128) == is_dark
        await page.get_by_role("button", name="Translate").and_(page.locator(":enabled")).wait_for()
        assert await page.evaluate(CONTRASTS) == []


async def test_a_narrow_screen(browser):
    model = make_model(name="a-model-of-a-very-long-name-" * 3)
    narrow = {"width": 320, "height": 640}
    async with serving(http_port=0, model=model) as running, showing(running, browser, viewport=narrow) as page:
        await wait_for(page, "#connection", "live")
        await submit(page, "a" * 19)
        await wait_for(page, "#hypotheses .words", "a" * 19)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320
        assert await page.get_by_role("button", name="Translate").is_visible()


async def test_screen_readers_find_names(browser):
    async with serving(http_port=0) as running, showing(running, browser) as page:
        await wait_for(page, "#connection", "live")
        controls = page.locator("select, input, textarea, button, meter")
        nameless = await controls.evaluate_all(
            "all => all.filter((each) => !each.labels?.length && !each.textContent.trim()).map((each) => each.id)"
        )
        assert nameless == []
        assert await page.get_by_role("heading", level=1).all_inner_texts() == ["Translane"]

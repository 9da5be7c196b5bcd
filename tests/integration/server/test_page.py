"""The page in a real Chromium: it translates, shows what the server does, and never does other things."""

import asyncio
import json
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
from helpers.server_process import BUNDLE
from translane.v1 import translation_pb2 as pb
from translane_server.access.keys import make_token
from translane_server.bundle.bundle import load_bundle

pytest.importorskip("playwright")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="neither chromium-headless-shell nor chromium is installed"),
    pytest.mark.asyncio(loop_scope="module"),
]

POLLING = 2_000  # milliseconds between two readings of the page
PAUSE = 300  # milliseconds after a key, before the text is translated


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    async with chromium() as browser:
        yield browser


@asynccontextmanager
async def showing(running, browser, *, complains=False, asks=False, changed=None, **options):
    """The page of a server that is connected, or `asks` for a key, and the only one that it calls.

    Unless it `complains`, it must not write to the console. `changed` makes another status of the server's.
    """

    async def another_status(route):
        answer = await route.fetch()
        await route.fulfill(response=answer, json=changed(await answer.json()))

    address = f"http://127.0.0.1:{running.server.http_port}/"
    async with opened(browser, **options) as (page, seen):
        await page.clock.install()
        await page.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))  # only tests let the page read again
        if changed:
            await page.route("**/status.json", another_status)
        await page.goto(address)
        if not asks:
            await wait_for(page, "#connection", "live")
        yield page
        await page.unroute_all(behavior="ignoreErrors")
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


async def write(page, text):
    """Write a text, and let the pause pass after which it is translated."""
    await page.get_by_label("Text", exact=True).fill(text)
    await page.clock.run_for(PAUSE)


async def wait_for_translation(page, text):
    """Wait until the translation is whole, and is this text."""
    await wait_for(page, "#translation[aria-busy=false]", text)


async def server_view(page):
    await page.get_by_role("link", name="Server").click()


@pytest.mark.slow
async def test_it_shows_the_models_and_figures_that_follow_the_load(browser):
    async with serving(http_port=0, rows=4) as running, showing(running, browser) as page:
        assert await page.title() == "Translane"
        await server_view(page)
        shown = {name: await figure(page, name, ".model") for name in ("name", "state", "rows", "waiting")}
        assert shown == {"name": "fake", "state": "ready", "rows": "0 of 4", "waiting": "0 of 64"}
        facts = await figure(page, "facts", ".model")
        assert "Chinese → English" in facts
        assert "version 2.1" in facts
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
        await page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        calls = running.server.metrics.of_method("unary", "translane.v1.TranslationService", "ListModels")
        await page.clock.run_for(POLLING)  # the timer that runs already finds the page hidden
        before = calls.started
        await page.clock.run_for(10 * POLLING)
        assert calls.started == before
        await page.evaluate("Object.defineProperty(document, 'hidden', {value: false})")
        async with page.expect_response("**/status.json"):
            await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


async def test_it_tells_that_the_server_is_gone(browser):
    async with serving(http_port=0) as running, showing(running, browser, complains=True) as page:
        await running.server.stop(grace=1)
        await page.clock.run_for(POLLING)
        await wait_for(page, "#connection", "no answer, trying again")


@pytest.mark.slow
async def test_translations_alternatives_and_their_alignment(browser):
    text = "我有一只猫，它很喜欢吃鱼。"
    given = {"returnTokens": True, "returnAlignment": True}
    async with (
        serving_bundle(load_bundle(BUNDLE), max_batch_size=8, http_port=0) as running,
        showing(running, browser) as page,
    ):
        await write(page, text)
        port = running.server.http_port
        answers = [
            await call(port, "Translate", {"texts": [text], "options": given | options})
            for options in ({}, {"beamSize": 5, "numHypotheses": 5})
        ]
        (greedy,), (beams,) = (answer.json["translations"] for answer in answers)
        output = page.locator("#translation")
        await wait_for_translation(page, greedy["hypotheses"][0]["text"])
        assert "zh-en" in await page.locator("#facts").inner_text()
        await page.get_by_role("button", name="Alternatives").click()
        lines = page.locator("#alternatives .words")
        await lines.nth(4).wait_for()
        assert await lines.all_inner_texts() == [each["text"] for each in beams["hypotheses"]]
        best = beams["hypotheses"][0]
        assert f"score {best['score']:.3f}" in await page.locator("#alternatives li").first.inner_text()

        pieces = [piece.replace("▁", "") for piece in beams["sourcePieces"]]
        word = lines.first.locator(".word").nth(3)
        assert await word.inner_text() == "cat"
        number = best["tokens"].index("▁cat")
        points = [each for each in best["alignment"]["points"] if each.get("targetToken", 0) == number]
        wanted = [pieces[each.get("sourceToken", 0)] for each in points]
        await word.hover()
        source = page.locator("#source-words")
        assert await source.locator(".aligned").all_inner_texts() == wanted == ["猫"]
        assert await lines.first.locator(".pointed").all_inner_texts() == ["cat"]
        assert re.fullmatch(r"cat ↔ 猫 \d+%", await page.locator("#alignment").inner_text())
        color = "element => getComputedStyle(element).backgroundColor"
        assert await source.locator(".aligned").evaluate(color) != "rgba(0, 0, 0, 0)"

        # The other way round, in each translation: the words lie below the text that one types.
        place = await source.locator(".word", has_text="猫").bounding_box()
        await page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
        assert "cat" in await lines.first.locator(".aligned").all_inner_texts()
        assert await page.locator("#alternatives li:has(.aligned)").count() >= 2

        await output.hover()
        await output.locator(".word").first.focus()
        await page.keyboard.press("ArrowRight")
        spoken = await page.evaluate("document.activeElement.textContent")
        assert spoken == await output.locator(".word").nth(1).inner_text()
        assert await output.inner_text() == greedy["hypotheses"][0]["text"]


async def begin_stream(page, running, text):
    """Write a text until some of its translation is shown, and return that. The next steps wait."""
    running.backend.hold()
    await write(page, text)
    running.backend.release(3)
    line = page.locator("#translation.growing:not(:empty)")
    await line.wait_for()
    return await line.inner_text()


@pytest.mark.slow
async def test_a_translation_arrives_in_pieces(browser):
    async with serving(http_port=0) as running, showing(running, browser) as page:
        begun = await begin_stream(page, running, "hello")
        assert "hello".startswith(begun)
        assert len(begun) <= 3
        running.backend.release()
        await wait_for_translation(page, "hello")
        line = page.locator("#translation")
        assert await line.evaluate("line => line.childNodes.length") > 1  # each piece is a text of its own
        assert re.match(r"[\d.]+ m?s · fake", await page.locator("#facts").inner_text())


@pytest.mark.slow
async def test_what_is_typed_on_ends_the_translation_before(browser):
    async with serving(http_port=0) as running, showing(running, browser) as page:
        await begin_stream(page, running, "hello")
        await page.get_by_label("Text", exact=True).press_sequentially("!")
        await until(lambda: not running.server._service._running)  # nobody decodes for nobody
        running.backend.release()
        await page.clock.run_for(PAUSE)
        await wait_for_translation(page, "hello!")
        await page.get_by_role("button", name="Clear").click()
        await wait_for(page, "#translation", "")
        await page.clock.run_for(PAUSE)
        assert await page.locator("#problem").inner_text() == ""


async def test_errors_have_the_servers_words(browser):
    async with serving(http_port=0) as running, showing(running, browser, complains=True) as page:
        text = "a" * 5000
        refused = await call(running.server.http_port, "Translate", {"texts": [text]})
        await write(page, text)
        problem = page.get_by_role("alert").filter(has_text=refused.reason)
        await problem.wait_for()
        assert await problem.inner_text() == f"{refused.json['message'].replace('texts[0]', 'text')} (REQUEST_TOO_LONG)"


async def test_a_document(browser):
    catalogue = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "abc"\nmsgstr "%s"\n'
    async with serving(http_port=0) as running, showing(running, browser) as page:
        chosen = {"name": "app.v2.po", "mimeType": "", "buffer": (catalogue % "").encode()}
        async with page.expect_download() as saving:
            await page.get_by_label("Document").set_input_files(chosen)
        saved = await saving.value
        assert saved.suggested_filename == "app.v2.en.po"
        content = await asyncio.to_thread(Path(await saved.path()).read_text)
        assert content == catalogue % "abc"
        assert await page.get_by_role("link", name="Save app.v2.en.po").is_visible()
        await page.get_by_label("Document").set_input_files(chosen | {"name": "app.json"})
        problem = page.get_by_role("alert").filter(has_text="app.json is of a kind that is not translated")
        await problem.wait_for()
        assert "srt, vtt" in await problem.inner_text()


@pytest.mark.slow
async def test_a_document_can_be_stopped(browser):
    async with serving(http_port=0) as running, showing(running, browser) as page:
        running.backend.hold()
        chosen = {"name": "a.txt", "mimeType": "", "buffer": b"hello\n"}
        await page.get_by_label("Document").set_input_files(chosen)
        await page.get_by_role("button", name="Stop").click()
        await until(lambda: not running.server._service._running)
        running.backend.release()
        assert not await page.locator("#document").is_visible()
        assert await page.locator("#problem").inner_text() == ""


# Some of the languages of a model of a hundred, in its order.
MANY = ["af", "am", "ar", "az", "be", "bg", "bn", "br", "ca", "cs", "de", "en", "fr", "ga", "hi", "ja", "zh"]


def choice(page, label):
    return page.get_by_label(label, exact=True).input_value()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("locale", "detects", "pair"),
    [
        ("en-US", False, ("zh", "en")),
        ("de-AT", False, ("en", "de")),
        ("fr", True, ("auto", "fr")),
        ("sw", False, ("en", "af")),
    ],
)
async def test_the_first_pair_is_the_readers(browser, locale, detects, pair):
    """A model of many languages begins with the reader's language. What is chosen is remembered."""

    def of_many(status):
        model = status["models"][0] | {"sourceLanguages": MANY, "targetLanguages": MANY}
        return status | {"models": [model], "identifiesLanguages": detects}

    async with serving(http_port=0) as running, showing(running, browser, changed=of_many, locale=locale) as page:
        assert (await choice(page, "From"), await choice(page, "To")) == pair
        await page.get_by_label("From", exact=True).select_option("ga")
        await page.get_by_label("To", exact=True).select_option("Irish")  # the language of the other side: both change
        assert (await choice(page, "From"), await choice(page, "To")) == (pair[1], "ga")
        await page.get_by_role("button", name="Swap the languages").click()
        assert (await choice(page, "From"), await choice(page, "To")) == ("ga", pair[1])
        await page.reload()
        await wait_for(page, "#connection", "live")
        assert (await choice(page, "From"), await choice(page, "To")) == ("ga", pair[1])
        names = await page.locator("[name=source] option").all_inner_texts()
        assert names[detects:] == sorted(names[detects:])


@pytest.mark.slow
async def test_languages_by_the_tags_of_nllb(browser):
    """They have names, and are those that other models spell in other ways. A model of the pair is always named."""
    tags = ["ace_Latn", "eng_Latn", "pes_Arab", "prs_Arab", "zho_Hans", "zho_Hant"]

    def of_two(status):
        (one,) = status["models"]
        other = one | {"name": "nllb", "sourceLanguages": tags, "targetLanguages": tags}
        return status | {"models": [one, other], "identifiesLanguages": False}

    async with (
        serving(http_port=0) as running,
        showing(running, browser, complains=True, changed=of_two, locale="zh-HK") as page,
    ):
        assert (await choice(page, "From"), await choice(page, "To")) == ("eng_Latn", "zho_Hant")
        assert await page.locator("[name=source] option").all_inner_texts() == [
            *("ace_Latn", "Chinese", "English", "Persian (Arabic, Afghanistan)", "Persian (Arabic)"),
            "Traditional Chinese",
        ]
        for source, models, named in (("zh", ["fake", "nllb"], "fake"), ("zho_Hant", ["nllb"], "nllb")):
            await page.get_by_label("From", exact=True).select_option(source)
            await page.get_by_label("To", exact=True).select_option("English")
            assert await page.locator("[name=model] option").all_inner_texts() == models
            async with page.expect_request("**/v1/stream") as asked:
                await write(page, f"from {source}")
            assert (await asked.value).post_data_json.get("model") == named


async def test_the_calls_are_described(browser):
    async with serving(http_port=0) as running, opened(browser) as (page, seen):
        await page.goto(f"http://127.0.0.1:{running.server.http_port}/docs")
        await page.get_by_role("heading", name="POST /v1/translate").wait_for()
        await page.get_by_role("link", name="TranslateRequest", exact=True).first.click()
        assert "texts" in await page.locator("#TranslateRequest[open] th").all_inner_texts()
        assert {urlsplit(each).port for each in seen.requests} == {running.server.http_port}
        assert seen.complaints == []


HOSTILE = "<img src=x onerror=alert(1)>"


async def test_what_looks_like_html_stays_text(browser):
    def renamed(status):
        model = status["models"][0] | {"name": HOSTILE, "version": HOSTILE, "sourceLanguages": [HOSTILE]}
        return status | {"models": [model], "serverVersion": HOSTILE}

    async def translated(route):
        words = {"text": HOSTILE, "tokens": ["▁<img", "▁src", "=", "x"]}
        if route.request.url.endswith("stream"):
            message = {"textDelta": HOSTILE, "hypothesis": words, "models": [HOSTILE]}
            await route.fulfill(body=json.dumps(message) + "\n")
        else:
            await route.fulfill(json={"translations": [{"hypotheses": [words], "sourcePieces": [HOSTILE]}]})

    async with serving(http_port=0) as running, showing(running, browser, changed=renamed) as page:
        await page.route("**/v1/*", translated)
        await write(page, HOSTILE)
        await wait_for_translation(page, HOSTILE)
        await page.get_by_role("button", name="Alternatives").click()
        await wait_for(page, "#alternatives .words", HOSTILE)
        assert await page.locator("#source-words").inner_text() == HOSTILE
        await server_view(page)
        await wait_for(page, '.model [data-field="name"]', HOSTILE)
        assert HOSTILE in await page.locator("#version").inner_text()
        assert await page.locator("img").count() == 1  # the page's own


async def test_no_script_makes_html_of_text(browser):
    async with serving(http_port=0) as running, showing(running, browser, complains=True) as page:
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
        showing(running, browser, complains=True, asks=True) as page,
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
        await write(page, "hello")
        await wait_for_translation(page, "hello")

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
    return [...document.querySelectorAll("body *:not([aria-hidden])")]
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
        await write(page, "hello")
        await wait_for_translation(page, "hello")
        ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) < 3 * 128) == is_dark
        assert await page.evaluate(CONTRASTS) == []
        await server_view(page)
        assert await page.evaluate(CONTRASTS) == []


async def test_a_narrow_screen(browser):
    model = make_model(name="a-model-of-a-very-long-name-" * 3)
    narrow = {"width": 320, "height": 640}
    async with serving(http_port=0, model=model) as running, showing(running, browser, viewport=narrow) as page:
        await write(page, "a" * 19)
        await wait_for_translation(page, "a" * 19)
        width = "document.documentElement.scrollWidth"
        assert await page.evaluate(width) <= 320
        assert await page.get_by_role("button", name="Copy").is_visible()
        await server_view(page)
        assert await page.evaluate(width) <= 320


async def test_screen_readers_find_names(browser):
    async with serving(http_port=0) as running, showing(running, browser) as page:
        controls = page.locator("select, input, textarea, button, meter")
        nameless = await controls.evaluate_all(
            "all => all.filter((each) => !each.labels?.length && !each.ariaLabel && !each.textContent.trim())"
            ".map((each) => each.outerHTML)"
        )
        assert nameless == []
        assert await page.get_by_role("heading", level=1).all_inner_texts() == ["Translane"]

"""The files of the status page, and the headers that keep the page safe."""

import re
from pathlib import Path

from translane_server.http import static_files
from translane_server.http.static_files import static_pages

FOLDER = Path(static_files.__file__).parent / "page"


def policy(page):
    return dict(part.partition(" ")[::2] for part in page.headers["content-security-policy"].split("; "))


async def test_every_file_is_a_page():
    pages = static_pages()
    assert pages.keys() == {"/", *(f"/page/{path.name}" for path in FOLDER.iterdir() if path.name != "index.html")}
    index = await pages["/"]([])
    assert index.content_type == "text/html; charset=utf-8"
    assert index.body == (FOLDER / "index.html").read_bytes()
    assert (await pages["/page/page.js"]([])).content_type == "text/javascript; charset=utf-8"


async def test_the_policy_allows_the_pages_own_files_alone():
    for make in static_pages().values():
        page = await make([])
        rules = policy(page)
        assert rules["default-src"] == "'none'"
        for name in ("script-src", "style-src", "connect-src"):
            assert rules[name] == "'self'"
        for name in ("frame-ancestors", "base-uri", "form-action"):
            assert rules[name] == "'none'"
        assert "unsafe" not in page.headers["content-security-policy"]
        assert page.headers["referrer-policy"] == "no-referrer"


def test_what_the_page_loads_is_there():
    index = (FOLDER / "index.html").read_text(encoding="utf-8")
    loaded = set(re.findall(r'(?:href|src)="page/([^"]+)"', index))
    scripts = [path for path in FOLDER.iterdir() if path.suffix == ".js"]
    loaded |= {name for path in scripts for name in re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8"))}
    assert loaded == {path.name for path in FOLDER.iterdir()} - {"index.html"}


def test_nothing_is_inline_and_no_text_becomes_html():
    index = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)|javascript:", index)
    for path in FOLDER.glob("*.js"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", source)
    for path in FOLDER.iterdir():
        addresses = set(re.findall(r"https?://[^\s\"');]+", path.read_text(encoding="utf-8")))
        assert addresses <= {"http://www.w3.org/2000/svg", "https://connectrpc.com/docs/protocol/."}

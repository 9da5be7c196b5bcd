"""The files of the page."""

import re
from pathlib import Path

from translane_server import http

FOLDER = Path(http.__file__).parent / "page"


def test_what_the_page_loads_is_there():
    pages = [path.read_text(encoding="utf-8") for path in FOLDER.glob("*.html")]
    loaded = {name for page in pages for name in re.findall(r'(?:href|src)="page/([^"]+)"', page)}
    scripts = [path for path in FOLDER.iterdir() if path.suffix == ".js"]
    loaded |= {name for path in scripts for name in re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8"))}
    assert loaded == {path.name for path in FOLDER.iterdir()} - {"index.html", "docs.html"}


def test_nothing_is_inline_and_no_text_becomes_html():
    for page in FOLDER.glob("*.html"):
        inline = r"<style|style=|\son\w+=|<script(?![^>]*src=)|javascript:"
        assert not re.search(inline, page.read_text(encoding="utf-8"))
    for path in FOLDER.glob("*.js"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", source)
    for path in FOLDER.iterdir():
        addresses = set(re.findall(r"https?://[^\s\"');]+", path.read_text(encoding="utf-8")))
        assert addresses <= {"http://www.w3.org/2000/svg"}

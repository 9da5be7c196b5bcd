"""Writes docs/real-texts.md: texts as people send them, translated by the bundled model, before and after.

    python -m benchmarks.runs.real_text_examples             # writes the page; a minute
    python -m benchmarks.runs.real_text_examples --check     # fails if the page is not what the server answers

"Before" is what the model makes of a text by itself: one sentence, nothing preserved, no markup. "After" is what the
server answers to a request that says no more than the format.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.engines.server_process import translane
from benchmarks.places import DEMO, ROOT
from translane_client import Client

PAGE = ROOT / "docs" / "real-texts.md"

AS_IT_WAS: dict[str, Any] = {"split_sentences": False, "preserve_untranslatable": False}

INTRODUCTION = """# Real texts, before and after

What people send is not one clean sentence. This page shows what becomes of it. `python -m
benchmarks.runs.real_text_examples` made it with the bundled model, which translates short Chinese sentences to English;
a larger model translates better, and the same things survive.

*Before* is what the model makes of a text by itself: `split_sentences` and `preserve_untranslatable` are false, and
nothing says what the text is written in. *After* is the default, with the format where there is one.
"""


@dataclass(frozen=True)
class Example:
    """A text, what it shows, and how it is sent.

    Attributes:
        title: the heading.
        says: one sentence about it.
        text: the text.
        options: arguments of `Client.translate` beside the defaults.
        language: the name of the text's syntax, for the page.
    """

    title: str
    says: str
    text: str
    options: dict[str, Any] = field(default_factory=dict)
    language: str = "text"


EXAMPLES = (
    Example(
        "A paragraph",
        "A text of several sentences is cut into sentences.",
        "我有一只猫。它喜欢喝牛奶。今天天气很好，我们去公园吧！",
    ),
    Example(
        "A list",
        "Blank lines, bullets and indents stay as they are.",
        "我们需要买的东西：\n\n- 牛奶\n- 面包\n  1. 他在看书。\n  2. 她喜欢喝茶。\n",
    ),
    Example(
        "Placeholders",
        "A program fills these in later, so each has to be there exactly once.",
        "你好，{name}，你有 %1$s 封新邮件。",
    ),
    Example(
        "URLs and e-mail addresses",
        "They lead nowhere once a letter has changed.",
        "请看 https://example.com/a?b=1 ，或者写信给 help@example.com 。",
    ),
    Example(
        "Emoji, and characters that the model has never seen",
        "The vocabulary cannot spell them, so they are copied.",
        "我爱你❤️！我们去公园吧👨‍👩‍👧。",
    ),
    Example(
        "Tags in plain text",
        "Pairs of tags come back around the words that they enclosed.",
        "我<b>非常</b>喜欢这本书。",
    ),
    Example(
        "HTML",
        "Whole sentences are translated; code, comments and attributes are not.",
        '<p>我喜欢<a href="/cha">喝茶</a>。他在<em>看书</em>。</p>\n'
        "<ul><li>你好！</li><li><code>make</code> 很有意思。</li></ul>",
        {"format": "html"},
        "html",
    ),
    Example(
        "Markdown",
        "The structure stays, byte for byte.",
        "# 你好\n\n我有一只**猫**。请看[这本书](https://example.com)。\n\n```\n不翻译\n```\n",
        {"format": "markdown"},
        "markdown",
    ),
    Example(
        "XLIFF",
        "Each inline element is there once, with its id.",
        '我喜欢<g id="1">喝茶</g>，<x id="2"/>不喜欢喝咖啡。',
        {"format": "xliff"},
        "xml",
    ),
    Example(
        "Your own pattern",
        "`preserve` takes regular expressions beside the rules.",
        "请问，订单 甲乙丙 在哪里？",
        {"preserve": ["甲乙丙"]},
    ),
)


def page() -> str:
    """Return the page, with what a server answers now."""
    with translane(DEMO) as server, Client(server.address) as client:
        return "\n".join(_lines(client))


def _lines(client: Client) -> Iterator[str]:
    yield INTRODUCTION
    for example in EXAMPLES:
        before = client.translate(example.text, **AS_IT_WAS).text
        after = client.translate(example.text, **example.options).text
        sent = ", ".join(f"`{name}={value!r}`" for name, value in example.options.items())
        yield f"## {example.title}\n"
        yield f"{example.says}{f' Sent with {sent}.' if sent else ''}\n"
        for name, text in (("Text", example.text), ("Before", before), ("After", after)):
            fence = "`" * (4 if "```" in text else 3)
            yield f"{name}:\n\n{fence}{example.language}\n{text.rstrip()}\n{fence}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page has changed")
    arguments = parser.parse_args()
    text = page()
    if arguments.check:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())

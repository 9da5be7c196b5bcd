"""A corpus of generated lines, in files of three kinds, and what stands in the files of its translations."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

WHEN = ["", "今天", "昨天", "明天", "现在", "去年", "每天", "星期一", "晚上", "早上", "下午", "上个月"]
WHO = [
    "我", "你", "他", "她", "我们", "他们", "汤姆", "玛丽", "老师", "医生", "我父亲", "他母亲", "那个男人", "我的朋友",
]  # fmt: skip
DOES = [
    "喜欢", "有", "想要", "买了", "看见了", "忘记了", "需要", "在找", "知道", "卖了", "带来了", "等着", "害怕", "谈论",
]  # fmt: skip
WHAT = [
    "一只猫", "一本书", "一辆车", "三个苹果", "一把椅子", "一杯水", "钥匙", "那封信", "新的工作", "很多钱", "那部电影",
    "这首歌", "一张票", "我的名字", "他的房子", "答案", "一台电脑", "面包", "学校", "火车", "雨伞", "音乐", "那条狗",
    "一件衬衫", "花", "照片", "北京", "好消息", "这个问题", "午饭",
]  # fmt: skip
ENDS = ["。", "吗？", "！"]
BLANK = 0.01  # of the records
COPIES = 50  # records of which the text is drawn together, as pages repeat what they have said


def records_of(number: int, different: int, draw: random.Random) -> list[str]:
    """The texts of the records, "" for a blank one. Each of the different texts occurs."""
    phrases = ["".join(words) for words in itertools.product(WHEN, WHO, DOES, WHAT, ENDS)]
    if different > min(number, len(phrases)):
        raise SystemExit(f"at most {min(number, len(phrases)):,} texts can be different")
    sources = draw.sample(phrases, different)
    lines = list(sources)
    while len(lines) < number:
        text = "" if draw.random() < BLANK else sources[int(different * draw.random() ** 2)]  # some occur often
        lines += [text] * min(draw.choice((1, 1, 1, COPIES)), number - len(lines))
    draw.shuffle(lines)
    return lines


def corpus_of(folder: Path, lines: Sequence[str]) -> Path:
    """Write the records into three files of three kinds."""
    folder.mkdir()
    first, second = len(lines) // 3, 2 * len(lines) // 3
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in lines[:first]), encoding="utf-8")
    with (folder / "b.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": line}, ensure_ascii=False) + "\n" for line in lines[first:second])
    with gzip.open(folder / "c.txt.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines[second:])
    return folder


def outputs_of(folder: Path) -> Iterator[str]:
    """The translations of the records in order."""
    with (folder / "a.txt").open(encoding="utf-8", newline="\n") as file:
        yield from (line.removesuffix("\n") for line in file)
    with (folder / "b.jsonl").open(encoding="utf-8") as file:
        yield from (json.loads(line)["translation"] for line in file)
    with gzip.open(folder / "c.txt.gz", "rt", encoding="utf-8", newline="\n") as file:
        yield from (line.removesuffix("\n") for line in file)

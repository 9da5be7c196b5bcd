"""The decoding options as flags.

A decoding option is a field of DecodingOptions in `translane.options` and a row of the table here. The protocol
says the type of its value.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from translane.options import DecodingOptions
from translane.v1 import translation_pb2 as pb
from translane_client.cli.flags import Flags, boolean, count, integer, number, unicode, unsigned
from translane_client.cli.term_files import read_terms

_BEAMS_WITH_TERMS = 4
"""The server's beam size for a request with terms, where neither the request nor the model's default has one."""

_VALUES: Mapping[int, tuple[str, Callable[[str], Any]]] = {
    FieldDescriptor.TYPE_INT32: ("N", integer),
    FieldDescriptor.TYPE_UINT64: ("N", unsigned),
    FieldDescriptor.TYPE_FLOAT: ("X", number),
    FieldDescriptor.TYPE_STRING: ("TEXT", unicode),
    FieldDescriptor.TYPE_MESSAGE: ("FILE", Path),  # terms, a line each
}
"""Type of a field of the protocol → the word for the value in the help, and the conversion of the value."""


_AUTO = "auto"
_SWITCHES = {"--split-sentences": "on", "--no-split-sentences": "off"}
"""Flags that may be typed without a value → the value."""


def with_values(argv: Sequence[str]) -> list[str]:
    """The command line with the value of each flag that was typed as a switch."""
    found = list[str]()
    texts_follow = False
    for word, following in pairwise([*argv, ""]):
        texts_follow = texts_follow or word == "--"
        if word in _SWITCHES and not texts_follow and not _is_value(word, following):
            found.append(f"--split-sentences={_SWITCHES[word]}")
        else:
            found.append(word)
    return found


def _is_value(flag: str, word: str) -> bool:
    return not flag.startswith("--no-") and word in (_AUTO, "on", "off")


def _choice(text: str) -> bool | str:
    """True from on, False from off, and auto as it is."""
    if text.lower() == _AUTO:
        return _AUTO
    try:
        return boolean(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"auto, on or off is needed, not {text!r}") from None


@dataclass(frozen=True, slots=True)
class _Flag:
    """The flag of one decoding option."""

    field: str
    """The option's name in DecodingOptions."""
    help: str
    default: str = ""
    """What the server does where the option is not set; the flag itself has no default, and is not sent."""
    spelling: str = ""
    """The flag, where it is not the option's name."""
    type: Callable[[str], Any] | None = None
    """The conversion of the value, where the protocol's type allows more than makes sense."""
    repeated: bool = False
    metavar: str = ""
    """The word for the value in the help, where the protocol's type has too wide a word."""

    @property
    def name(self) -> str:
        """The flag as it is typed, such as --beam-size."""
        return self.spelling or "--" + self.field.replace("_", "-")

    @property
    def dest(self) -> str:
        """The name of the flag's value among the arguments."""
        return self.name.removeprefix("--").replace("-", "_")

    def add_to(self, flags: Flags) -> None:
        """Declares the flag."""
        help = f"{self.help} (default: {self.default})" if self.default else self.help
        kind = pb.DecodingOptions.DESCRIPTOR.fields_by_name[self.field].type
        if kind == FieldDescriptor.TYPE_BOOL and not self.type:
            flags.switch(self.name, default=None, help=help)
            return
        metavar, convert = _VALUES.get(kind, ("", self.type))
        repetition = {"action": "append"} if self.repeated else {}
        flags.add(self.name, metavar=self.metavar or metavar, type=self.type or convert, help=help, **repetition)


_SECTIONS: Mapping[str, tuple[_Flag, ...]] = {
    "decoding (a flag that is not set takes the model's default, or else the default named here)": (
        _Flag("beam_size", "number of beams; 1 is greedy search", "1, or 4 where a term occurs", type=count),
        _Flag("min_length", "fewest tokens of a translation", "0"),
        _Flag("max_length", "most tokens of a translation", "the model's", type=count),
        _Flag("repetition_penalty", "make tokens that occurred already X times less likely", "1"),
        _Flag("no_repeat_ngram_size", "let no sequence of N tokens occur twice; 0 is off", "0"),
        _Flag("target_prefix", "begin each translation with TEXT"),
        _Flag(
            "suppressed_phrases", "keep TEXT out of the translations; may be repeated", "", "--suppress", repeated=True
        ),
        _Flag("suppress_unknown", "never generate the unknown token", "no"),
        _Flag("replace_unknowns", "replace an unknown token by the source token it is aligned to", "no"),
        _Flag("use_shortlist", "generate only the tokens that the model's shortlist has for the source", "no"),
        _Flag(
            "split_sentences",
            "auto, on or off: cut each text into sentences, and join their translations; auto cuts texts of several"
            " sentences, or of too many tokens",
            "auto",
            type=_choice,
            metavar="WHEN",
        ),
    ),
    "what stays as it is, and terms": (
        _Flag(
            "preserve",
            "do not translate what the regular expression (RE2) matches; may be repeated",
            repeated=True,
            metavar="REGEX",
        ),
        _Flag(
            "preserve_untranslatable",
            "do not translate placeholders, URLs, e-mail addresses, tags, emoji and unknown characters",
            "yes",
        ),
        _Flag("terminology", "lines of source TAB target: where source occurs, target occurs too", "", "--terms"),
        _Flag(
            "glossaries",
            "add the terms of a glossary that the server stores; may be repeated",
            "",
            "--glossary",
            repeated=True,
            metavar="NAME",
        ),
    ),
    "beam search (where there are several beams)": (
        _Flag("length_penalty", "rank hypotheses by log-probability / length^X", "1"),
        _Flag("early_stopping", "stop as soon as --beam-size hypotheses have ended", "no"),
        _Flag("patience", "wait for X times as many ended hypotheses", "1"),
        _Flag("coverage_penalty", "weight of the penalty for source tokens left out", "0"),
    ),
    "sampling (where --temperature, --top-k or --top-p is set)": (
        _Flag("temperature", "divide the logits by X", "1"),
        _Flag("top_k", "sample among the N best tokens", "all"),
        _Flag("top_p", "sample among the best tokens whose probabilities add up to X", "all"),
        _Flag("seed", "the same N gives the same sample", "another each time"),
    ),
    "results": (
        _Flag("num_hypotheses", "hypotheses of each text, as n-best lines", "1", type=count),
        _Flag(
            "return_alternatives",
            "hypotheses that differ in the token after the prefix, and go on by greedy search",
            "no",
            "--alternatives",
        ),
        _Flag("return_tokens", "write the tokens", "no", "--tokens"),
        _Flag("return_token_scores", "write the scores; with --tokens, those of the tokens too", "no", "--scores"),
        _Flag("return_alignment", "write source-target pairs of aligned tokens, such as 0-0 1-2", "no", "--alignment"),
        _Flag("return_quality", "write the estimated quality, from 0 to 1", "no", "--quality"),
    ),
}
"""Heading in the help → its flags."""

FLAGS: Mapping[str, _Flag] = {flag.field: flag for flags in _SECTIONS.values() for flag in flags}
"""The flag of each field of DecodingOptions."""

_SAMPLING = ("temperature", "top_k", "top_p")


def add_flags(flags: Flags) -> None:
    """Declares a flag for each decoding option, and --nbest."""
    for title, members in _SECTIONS.items():
        flags.section(title)
        for flag in members:
            flag.add_to(flags)
    flags.add(
        "--nbest",
        type=count,
        metavar="N",
        help="as --num-hypotheses N, with N beams unless --beam-size, sampling or --alternatives is set",
    )


def settle_nbest(arguments: argparse.Namespace) -> None:
    """Unsets one of --nbest and --num-hypotheses where both are set: the command line wins over the environment.

    Exits with a usage error where both come from the command line, or both from the environment.
    """
    both = {"nbest", "num_hypotheses"}
    if any(getattr(arguments, name) is None for name in both):
        return
    given = arguments.given & both
    if len(given) != 1:
        arguments.parser.error("--nbest and --num-hypotheses exclude each other")
    for name in both - given:
        setattr(arguments, name, None)


def decoding_options(arguments: argparse.Namespace) -> DecodingOptions:
    """The options that the arguments set.

    Raises:
        FileError: the file of terms cannot be read, or a line of it holds no term.
    """
    options = DecodingOptions()
    for field, flag in FLAGS.items():
        value = getattr(arguments, flag.dest)
        if value is not None and value != _AUTO:
            if field == "terminology":
                arguments.term_file = read_terms(value)  # which errors name the lines of
                value = arguments.term_file.terms
            options[field] = value  # type: ignore[literal-required]
    if arguments.nbest is not None:
        options["num_hypotheses"] = arguments.nbest
        if _needs_beams(options):
            options["beam_size"] = arguments.nbest
            if _has_terms(options):
                options["beam_size"] = max(arguments.nbest, _BEAMS_WITH_TERMS)
        options.setdefault("return_token_scores", True)  # n-best lines hold scores
    return options


def _needs_beams(options: DecodingOptions) -> bool:
    """Whether n-best hypotheses need a number of beams: the model's default may be smaller."""
    if any(options.get(name) is not None for name in ("beam_size", *_SAMPLING)) or options.get("return_alternatives"):
        return False
    return options.get("num_hypotheses") != 1 or not _has_terms(options)


def _has_terms(options: DecodingOptions) -> bool:
    return bool(options.get("terminology") or options.get("glossaries"))


def flag_of(field: str, arguments: argparse.Namespace) -> str | None:
    """The flag that sets a request's field, such as "options.beam_size"; None where there is none.

    For a term, such as "options.terminology[2].source", it is the term's file, line and side.
    """
    term = re.match(r"options\.terminology\[(\d+)\](?:\.(source|target)\b)?", field)
    if term and (file := getattr(arguments, "term_file", None)):
        return f"{file.place(int(term[1]))}{', ' + term[2] if term[2] else ''}"
    if field in ("model", "source_language", "target_language", "format", "priority"):
        return "--" + field.replace("_", "-")
    match = re.match(r"options\.(\w+)", field)
    if not match or match[1] not in FLAGS:
        return None
    flag = FLAGS[match[1]]
    by_nbest = match[1] in ("num_hypotheses", "beam_size") and getattr(arguments, flag.dest) is None
    return "--nbest" if by_nbest and arguments.nbest is not None else flag.name


def with_flags(sentence: str) -> str:
    """A server's sentence with flags in place of options' names; unchanged where it quotes a part of the request."""
    if re.search("[\"'`]", sentence):
        return sentence
    names = "|".join(FLAGS)
    return re.sub(rf"\b(?:options\.)?({names})\b", lambda match: FLAGS[match[1]].name, sentence)

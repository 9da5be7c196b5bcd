"""The decoding options as flags.

A decoding option is a field of Options in `translane.options`, which has the type of its value, and a row of the table
here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, cast

from translane.options import DecodingOptions, Options
from translane_client.cli.flags import Flags, count, integer, number, unicode, unsigned
from translane_client.cli.inputs import read_terms

_BEAMS_WITH_TERMS = 4
"""The server's beam size for a request with terms, where neither the request nor the model's default has one."""


class _Flag(NamedTuple):
    """The flag of one decoding option."""

    field: str  # the option's name in DecodingOptions
    help: str
    default: str = ""  # what the server does where the option is not set; the flag itself has none, and is not sent
    spelling: str = ""  # the flag, where it is not the option's name
    type: Callable[[str], Any] | None = None  # converts the value, where the option's type allows more than makes sense
    metavar: str = ""  # the word for the value in the help, where the option's type has too wide a word

    @property
    def name(self) -> str:
        """The flag as it is typed, such as --beam-size."""
        return self.spelling or "--" + self.field.replace("_", "-")

    @property
    def dest(self) -> str:
        """The name of the flag's value among the arguments."""
        return self.name.removeprefix("--").replace("-", "_")

    def add_to(self, flags: Flags) -> None:
        help = f"{self.help} (default: {self.default})" if self.default else self.help
        kind = _TYPES[self.field]
        if kind == "bool | None":
            flags.switch(self.name, default=None, help=help)
            return
        metavar, convert = _VALUES.get(kind, ("", None))
        several: dict[str, Any] = {"action": "append"} if kind == "tuple[str, ...]" else {}
        flags.add(self.name, metavar=self.metavar or metavar, type=self.type or convert, help=help, **several)


_TYPES = {field.name: str(field.type) for field in fields(Options)}

# Type of an option → the word for the value in the help, and the conversion of the value.
_VALUES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "int | None": ("N", integer),
    "float | None": ("X", number),
    "str | None": ("TEXT", unicode),
    "tuple[str, ...]": ("TEXT", unicode),
    "tuple[Term, ...]": ("FILE", Path),  # terms, a line each
}

# Heading in the help → its flags.
_SECTIONS: Mapping[str, tuple[_Flag, ...]] = {
    "decoding (a flag that is not set takes the model's default, or else the default named here)": (
        _Flag("beam_size", "number of beams; 1 is greedy search", "1, or 4 where a term occurs", type=count),
        _Flag("min_length", "fewest tokens of a translation", "0"),
        _Flag("max_length", "most tokens of a translation", "the model's", type=count),
        _Flag("repetition_penalty", "make tokens that occurred already X times less likely", "1"),
        _Flag("no_repeat_ngram_size", "let no sequence of N tokens occur twice; 0 is off", "0"),
        _Flag("target_prefix", "begin each translation with TEXT"),
        _Flag("suppressed_phrases", "keep TEXT out of the translations; may be repeated", spelling="--suppress"),
        _Flag("suppress_unknown", "never generate the unknown token", "no"),
        _Flag("replace_unknowns", "replace an unknown token by the source token it is aligned to", "no"),
        _Flag("check_numbers", "decode a sentence again whose translation lacks a number", "no"),
        _Flag("use_shortlist", "generate only the tokens that the model's shortlist has for the source", "no"),
        _Flag(
            "split_sentences",
            "cut each text into sentences, and join their translations, or never do it",
            "texts of several sentences, or of too many tokens, are cut",
        ),
    ),
    "what stays as it is, and terms": (
        _Flag(
            "preserve", "do not translate what the regular expression (RE2) matches; may be repeated", metavar="REGEX"
        ),
        _Flag(
            "preserve_untranslatable",
            "do not translate placeholders, URLs, e-mail addresses, tags, emoji and unknown characters",
            "yes",
        ),
        _Flag("terminology", "lines of source TAB target: where source occurs, target occurs too", spelling="--terms"),
        _Flag(
            "glossaries",
            "add the terms of a glossary that the server stores; may be repeated",
            spelling="--glossary",
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
        _Flag("seed", "the same N gives the same sample", "another each time", type=unsigned),
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

FLAGS: Mapping[str, _Flag] = {flag.field: flag for flags in _SECTIONS.values() for flag in flags}
"""The flag of each field of DecodingOptions."""


def add_flags(flags: Flags) -> None:
    """Declares a flag for each decoding option, and --nbest."""
    for title, members in _SECTIONS.items():
        flags.section(title)
        for flag in members:
            flag.add_to(flags)
    help = "as --num-hypotheses N, with N beams unless --beam-size, sampling or --alternatives is set"
    flags.add("--nbest", type=count, metavar="N", help=help)


def decoding_options(arguments: argparse.Namespace) -> DecodingOptions:
    """The options that the arguments set.

    One of --nbest and --num-hypotheses may be set; the command line wins over the environment. Exits with a usage
    error where both come from the command line, or both from the environment.
    """
    both = {"nbest", "num_hypotheses"}
    if all(getattr(arguments, name) is not None for name in both):
        if len(given := arguments.given & both) != 1:
            arguments.parser.error("--nbest and --num-hypotheses exclude each other")
        (other,) = both - given
        setattr(arguments, other, None)
    values = {field: getattr(arguments, flag.dest) for field, flag in FLAGS.items()}
    options: dict[str, Any] = {field: value for field, value in values.items() if value is not None}
    if path := options.get("terminology"):
        terms = read_terms(path)
        arguments.term_lines = list(terms)  # which errors name
        options["terminology"] = list(terms.values())
    if arguments.nbest is not None:
        options["num_hypotheses"] = arguments.nbest
        has_terms = bool(options.get("terminology") or options.get("glossaries"))
        chosen = {"beam_size", "temperature", "top_k", "top_p"} & options.keys() or options.get("return_alternatives")
        if not chosen and not (arguments.nbest == 1 and has_terms):  # the model's default may be fewer beams
            options["beam_size"] = max(arguments.nbest, _BEAMS_WITH_TERMS) if has_terms else arguments.nbest
        options.setdefault("return_token_scores", True)  # n-best lines hold scores
    return cast(DecodingOptions, options)


def flag_of(field: str, arguments: argparse.Namespace) -> str | None:
    """The flag that sets a request's field, such as "options.beam_size"; None where there is none.

    For a term, such as "options.terminology[2].source", it is the term's file, line and side.
    """
    term = re.match(r"options\.terminology\[(\d+)\](?:\.(source|target)\b)?", field)
    if term and arguments.terms:
        line = "".join(f", line {each}" for each in arguments.term_lines[int(term[1]) :][:1])
        return f"{arguments.terms}{line}{', ' + term[2] if term[2] else ''}"
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

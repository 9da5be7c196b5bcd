"""The decoding options as flags."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from translane_client.flags import Flags, count, integer, number, unicode, unsigned
from translane_client.options import DecodingOptions
from translane_client.terms import read_terms

_TERMINOLOGY_BEAMS = 4
"""The server's beam size where terms are to be kept and none is set."""


@dataclass(frozen=True, slots=True)
class _Flag:
    name: str
    help: str
    metavar: str | None = None
    type: Callable[[str], Any] | None = None
    """None: yes or no."""
    repeated: bool = False

    @property
    def dest(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")

    def add_to(self, flags: Flags) -> None:
        settings: dict[str, Any] = {"metavar": self.metavar, "type": self.type}
        if self.type is None:
            settings = {"action": argparse.BooleanOptionalAction}
        elif self.repeated:
            settings["action"] = "append"
        flags.add(self.name, help=self.help, **settings)


FLAGS: Mapping[str, _Flag] = {
    "beam_size": _Flag("--beam-size", "beams; 1 is greedy search. Unset: 1, and 4 with --terms", "N", count),
    "num_hypotheses": _Flag("--num-hypotheses", "hypotheses of each text, as n-best lines. Unset: 1", "N", count),
    "length_penalty": _Flag("--length-penalty", "beams: rank by log-probability / length^X. Unset: 1", "X", number),
    "early_stopping": _Flag("--early-stopping", "beams: stop once as many hypotheses as beams have ended. Unset: no"),
    "patience": _Flag("--patience", "beams: wait for X times as many ended hypotheses. Unset: 1", "X", number),
    "coverage_penalty": _Flag(
        "--coverage-penalty", "beams: weight of the penalty for source tokens left out. Unset: 0", "X", number
    ),
    "repetition_penalty": _Flag(
        "--repetition-penalty", "tokens generated already are X times less likely. Unset: 1", "X", number
    ),
    "no_repeat_ngram_size": _Flag(
        "--no-repeat-ngram-size", "no sequence of N tokens occurs twice. Unset: 0, which is off", "N", integer
    ),
    "min_length": _Flag("--min-length", "least tokens before a translation ends. Unset: 0", "N", integer),
    "max_length": _Flag("--max-length", "most tokens of a translation. Unset: the model's", "N", count),
    "top_k": _Flag("--top-k", "sample among the N best tokens. Unset: among all", "N", integer),
    "top_p": _Flag(
        "--top-p", "sample among the best tokens whose probabilities add up to X. Unset: among all", "X", number
    ),
    "temperature": _Flag("--temperature", "sample; the logits are divided by X. Unset: 1", "X", number),
    "seed": _Flag("--seed", "the same N gives the same sample. Unset: every sample is another", "N", unsigned),
    "target_prefix": _Flag("--target-prefix", "each translation starts with TEXT", "TEXT", unicode),
    "return_alternatives": _Flag(
        "--alternatives", "hypotheses that differ in the token after the prefix, and go on greedily"
    ),
    "suppress_unknown": _Flag("--suppress-unknown", "never generate the unknown token"),
    "replace_unknowns": _Flag("--replace-unknowns", "put the aligned source token for an unknown token"),
    "suppressed_phrases": _Flag(
        "--suppress", "must not occur in a translation; may be repeated", "PHRASE", unicode, repeated=True
    ),
    "terminology": _Flag(
        "--terms", "source TAB target on each line: where source occurs, target occurs too", "FILE", Path
    ),
    "split_sentences": _Flag("--split-sentences", "cut each text into sentences, and put their translations together"),
    "return_tokens": _Flag("--tokens", "write the tokens"),
    "return_token_scores": _Flag("--scores", "write the scores; with --tokens those of the tokens too"),
    "return_alignment": _Flag("--alignment", "write the alignment, as 0-0 1-2: source token, target token"),
}
"""The flag of each field of DecodingOptions."""

_SAMPLING = ("temperature", "top_k", "top_p")


def add_flags(flags: Flags) -> None:
    """Declares a flag for each decoding option, and --nbest."""
    flags.section(
        "decoding", "beams where --beam-size is above 1; sampling with one of --temperature, --top-k, --top-p"
    )
    for flag in FLAGS.values():
        flag.add_to(flags)
    flags.add(
        "--nbest",
        type=count,
        metavar="N",
        help="N hypotheses of each text, as n-best lines: --num-hypotheses N, with as many beams where neither "
        "--beam-size nor sampling nor --alternatives is set",
    )


def settle_nbest(arguments: argparse.Namespace) -> None:
    """Lets the command line win over the environment where one sets --nbest and the other --num-hypotheses.

    Exits with a usage error where it sets both, or the environment does.
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
        FileError: the file of terms cannot be read, or holds a line that is no term.
    """
    options = DecodingOptions()
    for field, flag in FLAGS.items():
        value = getattr(arguments, flag.dest)
        if value is not None:
            options[field] = read_terms(value) if field == "terminology" else value  # type: ignore[literal-required]
    if arguments.nbest is not None:
        options["num_hypotheses"] = arguments.nbest
        if _wants_beams_for(options):
            options["beam_size"] = arguments.nbest
        options.setdefault("return_token_scores", True)  # n-best lines tell scores
    return options


def _wants_beams_for(options: DecodingOptions) -> bool:
    """Whether n-best hypotheses need beams that nobody has asked for."""
    if any(options.get(name) is not None for name in ("beam_size", *_SAMPLING)) or options.get("return_alternatives"):
        return False
    return not options.get("terminology") or (options["num_hypotheses"] or 0) > _TERMINOLOGY_BEAMS


def flag_of(field: str, arguments: argparse.Namespace) -> str | None:
    """The flag that sets a field of a request, such as "options.terminology[2].source"; None where there is none."""
    if field in ("model", "source_language", "target_language", "priority"):
        return "--" + field.replace("_", "-")
    match = re.match(r"options\.(\w+)", field)
    if not match or match[1] not in FLAGS:
        return None
    flag = FLAGS[match[1]]
    by_nbest = match[1] in ("num_hypotheses", "beam_size") and getattr(arguments, flag.dest) is None
    return "--nbest" if by_nbest and arguments.nbest is not None else flag.name


def with_flags(sentence: str) -> str:
    """A server's sentence about options, with the names of the flags in it; as it is where it quotes what was sent."""
    if re.search("[\"'`]", sentence):
        return sentence
    names = "|".join(FLAGS)
    return re.sub(rf"\b(?:options\.)?({names})\b", lambda match: FLAGS[match[1]].name, sentence)

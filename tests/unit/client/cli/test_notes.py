"""Files of terms, and what standard error says of terms and of texts that were cut."""

import json
from typing import Any

import pytest

from fakes.translation_server import answer, refuses, streamed
from translane.conversions import options_message
from translane.options import Term, checked_options
from translane.v1 import translation_pb2 as pb

CUT = pb.Treatment(sentences=3, cut_sentences=1)


def treats(**treatments: pb.Treatment):
    """A server that treats texts so."""

    def behave(request, context):
        if isinstance(request, pb.TranslateStreamRequest):
            *deltas, last = streamed(request)
            return [*deltas, _treated(last, request.text)]
        response = answer(request)
        for text, translation in zip(request.texts, response.translations, strict=True):
            _treated(translation, text)
        return response

    def _treated(message, text):
        if text in treatments:
            message.treatment.CopyFrom(treatments[text])
        return message

    return behave


def term(source: str, outcome: Any, glossary: str = "") -> pb.TermReport:
    return pb.TermReport(source=source, target=source.upper(), outcome=outcome, glossary=glossary)


def test_a_text_that_was_cut_is_named(server, command):
    server.always = treats(b=CUT, d=pb.Treatment(cut_sentences=2))
    assert command("translate", stdin=b"a\nb\nc\nd\n") == 0
    assert command.out == "<a>\n<b>\n<c>\n<d>\n"
    assert command.err == (
        "translane translate: standard input, line 2: 1 sentence was too long, and cut in the middle\n"
        "translane translate: standard input, line 4: 2 sentences were too long, and cut in the middle\n"
    )


@pytest.mark.parametrize("flags", [[], ["--stream"]])
def test_texts_of_the_command_line_are_named_by_their_number(server, command, flags):
    server.always = treats(b=CUT)
    assert command("translate", "a", "b", *flags) == 0
    assert command.err == "translane translate: text 2: 1 sentence was too long, and cut in the middle\n"


@pytest.mark.parametrize(
    ("report", "note"),
    [
        (term("x", pb.TERM_OUTCOME_APPLIED), ""),
        (term("x", pb.TERM_OUTCOME_NOT_FOUND), ""),
        (term("x", 99), ""),
        (term("x", pb.TERM_OUTCOME_MISSED), "text 1: the term x → X was not applied: the translation ended before it"),
        (
            term("x", pb.TERM_OUTCOME_TOO_MANY, "cats"),
            "text 1: the term x → X of the glossary cats was not applied:"
            " the text has more terms than a sentence can keep",
        ),
        (
            term("x", pb.TERM_OUTCOME_PRESERVED),
            "text 1: the term x → X was not applied: it occurs only in what is not translated",
        ),
        (
            term("x", pb.TERM_OUTCOME_UNSPELLABLE),
            "the term x → X was not applied: the model's vocabulary cannot spell the target",
        ),
    ],
)
def test_a_term_that_was_not_applied_is_named(server, command, report, note):
    server.always = treats(a=pb.Treatment(terms=[report]))
    assert command("translate", "a", "b") == 0
    assert command.err == (f"translane translate: {note}\n" if note else "")


def test_what_is_so_in_every_text_is_said_once(server, command):
    treatment = pb.Treatment(terms=[term("x", pb.TERM_OUTCOME_UNSPELLABLE)])
    server.always = treats(a=treatment, b=treatment)
    assert command("translate", "a", "b") == 0
    assert command.err.count("\n") == 1


def test_no_more_than_ten_are_shown(server, command):
    server.always = treats(**{f"t{n}": CUT for n in range(40)})
    assert command("translate", stdin="".join(f"t{n}\n" for n in range(40)).encode()) == 0
    lines = command.err.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "translane translate: and 30 more such notes; --json has them all"


def test_notes_are_printable(server, command):
    server.always = treats(a=pb.Treatment(terms=[term("\x1b[2J", pb.TERM_OUTCOME_MISSED)]))
    assert command("translate", "a") == 0
    assert "\x1b" not in command.err


def test_json_has_the_treatment_and_standard_error_has_nothing(server, command):
    terms = [term("x", pb.TERM_OUTCOME_MISSED, "cats")]
    server.always = treats(a=pb.Treatment(sentences=3, cut_sentences=1, preserved=2, terms=terms, source_language="de"))
    assert command("translate", "--json", "a") == 0
    assert command("translate", "--json", "--stream", "a") == 0
    assert command.err == ""
    for line in (command.out.splitlines()[0], command.out.splitlines()[-1]):
        assert json.loads(line)["treatment"] == {
            "sentences": 3,
            "cut_sentences": 1,
            "stand_ins": 0,
            "decoded_again": 0,
            "missing_numbers": 0,
            "preserved": 2,
            "terms": [{"source": "x", "target": "X", "outcome": "missed", "glossary": "cats"}],
            "source_language": "de",
            "pivot_language": None,
        }


# Files of terms, through the command.


@pytest.mark.parametrize(
    ("content", "terms"),
    [
        (b"", []),
        ("猫\tcat\n狗\tdog\n".encode(), [("猫", "cat"), ("狗", "dog")]),
        ("\ufeff猫\tcat\r\n\r\n狗\tdog".encode(), [("猫", "cat"), ("狗", "dog")]),
        ("# animals\n\n  \n猫\tcat\n#狗\tdog\n".encode(), [("猫", "cat")]),
        ("猫\tcat\n猫\tkitty\n猫\tcat\n".encode(), [("猫", "cat"), ("猫", "kitty"), ("猫", "cat")]),
        ("  家 猫 \t house  cat \n".encode(), [("家 猫", "house  cat")]),
        (b"C#\tC sharp\n", [("C#", "C sharp")]),
        (b"a\tb\t\nc\td\tinflected , ignore-case\n", [("a", "b"), Term("c", "d", ignore_case=True, inflected=True)]),
    ],
)
def test_a_line_is_a_term(server, command, tmp_path, content, terms):
    path = tmp_path / "terms.tsv"
    path.write_bytes(content)
    assert command("translate", "a", "--terms", str(path)) == 0
    assert list(server.requests[0].options.terminology) == list(
        options_message(checked_options({"terminology": terms})).terminology
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("猫 cat".encode(), ", line 3: it has no tab, and a term has one or two: between source, target and flags"),
        (b"\xff\tcat", ", line 3: not valid UTF-8 (byte 1 of the line)"),
    ],
)
def test_a_line_that_is_no_term_is_named(server, command, tmp_path, content, message):
    path = tmp_path / "terms.tsv"
    path.write_bytes("# animals\n狗\tdog\n".encode() + content + b"\n")
    assert command("translate", "a", "--terms", str(path)) == 1
    assert command.err == f"translane translate: {path}{message}\n"
    assert server.requests == []


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("options.terminology[1].target", "{path}, line 4, target"),
        ("options.terminology[0]", "{path}, line 2"),
        ("options.terminology[7].source", "{path}, source"),
        ("options.terminology", "--terms"),
    ],
)
def test_the_line_of_a_term_that_the_server_refuses_is_named(server, command, tmp_path, field, place):
    path = tmp_path / "terms.tsv"
    path.write_text("# animals\ncat\tKatze\n\ndog\tHund\n")
    server.always = refuses((field, "is too long"))
    assert command("translate", "a", "--terms", str(path)) == 1
    assert command.err == f"translane translate: {place.format(path=path)}: is too long\n"


def test_a_file_that_is_not_there_is_named(server, command, tmp_path):
    assert command("translate", "a", "--terms", str(tmp_path / "none.tsv")) == 1
    assert command.err == f"translane translate: {tmp_path / 'none.tsv'}: No such file or directory\n"
    assert server.requests == []

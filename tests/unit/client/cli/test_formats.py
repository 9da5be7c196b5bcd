"""What `translane translate` writes for a translation: columns, n-best lines, JSON; and how it tells of options."""

import json

import grpc
import pytest

from fakes.translation_server import bad_fields, fails, reason, refuses, texts_of
from translane.v1 import translation_pb2 as pb


def hypothesis(text: str, score: float) -> pb.Hypothesis:
    return pb.Hypothesis(
        text=text,
        score=score,
        quality=0.75,
        tokens=["▁the", "▁" + text, "</s>"],
        token_log_probs=[-0.5, -0.25, -1.0],
        finish_reason=pb.FINISH_REASON_END_OF_SENTENCE,
        alignment=pb.Alignment(
            points=[
                pb.AlignmentPoint(source_token=0, target_token=0, weight=0.5),
                pb.AlignmentPoint(source_token=2, target_token=1, weight=0.25),
            ]
        ),
    )


@pytest.fixture(autouse=True)
def _many_hypotheses(server):
    def behave(request: pb.TranslateRequest, context: grpc.ServicerContext) -> pb.TranslateResponse:
        translations = [
            pb.Translation(
                hypotheses=[
                    hypothesis(f"{text}{rank}" if text else "", -rank - 0.5)
                    for rank in range(request.options.num_hypotheses or 1)
                ],
                source_tokens=3,
                source_pieces=["▁", text, "</s>"],
            )
            for text in texts_of(request)
        ]
        return pb.TranslateResponse(translations=translations, model="zh-en")

    server.always = behave


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], "猫0"),
        (["--scores"], "-0.500000\t猫0"),
        (["--scores", "--quality", "--alignment"], "-0.500000\t0.750\t猫0\t0-0 2-1"),
        (["--tokens", "--alignment"], "猫0\t▁the ▁猫0 </s>\t0-0 2-1"),
        (
            ["--scores", "--tokens", "--alignment"],
            "-0.500000\t猫0\t▁the:-0.500000 ▁猫0:-0.250000 </s>:-1.000000\t0-0 2-1",
        ),
        (["--nbest", "1"], "0 ||| 猫0 ||| -0.500000"),
        (["--nbest", "1", "--scores"], "0 ||| 猫0 ||| -0.500000"),
        (["--nbest", "1", "--quality", "--alignment"], "0 ||| 猫0 ||| -0.500000 ||| 0.750 ||| 0-0 2-1"),
        (["--nbest", "1", "--tokens", "--alignment"], "0 ||| 猫0 ||| -0.500000 ||| ▁the ▁猫0 </s> ||| 0-0 2-1"),
        (["--num-hypotheses", "2", "--beam-size", "4"], "0 ||| 猫0 ||| -0.500000\n0 ||| 猫1 ||| -1.500000"),
    ],
)
def test_columns_and_nbest_lines(command, flags, line):
    assert command("translate", "猫", *flags) == 0
    assert command.out == line + "\n"


def test_each_hypothesis_is_a_line_that_begins_with_the_number_of_its_text(command):
    assert command("translate", "--nbest", "2", "--batch-size", "1", stdin="猫\n\nb\n".encode()) == 0
    assert command.out == (
        "0 ||| 猫0 ||| -0.500000\n"
        "0 ||| 猫1 ||| -1.500000\n"
        "1 |||  ||| -0.500000\n"
        "1 |||  ||| -1.500000\n"
        "2 ||| b0 ||| -0.500000\n"
        "2 ||| b1 ||| -1.500000\n"
    )


@pytest.mark.parametrize(
    ("nbest", "flags", "beam_size"),
    [
        (3, [], 3),
        (3, ["--no-alternatives"], 3),
        (3, ["--seed", "3"], 3),
        (3, ["--beam-size", "8"], 8),
        (3, ["--alternatives"], None),
        (3, ["--temperature", "0.5"], None),
        (3, ["--top-k", "9"], None),
        (3, ["--top-p", "0.9"], None),
        # Terms need four beams.
        (1, ["--terms"], None),
        (2, ["--terms"], 4),
        (4, ["--terms"], 4),
        (5, ["--terms"], 5),
    ],
)
def test_nbest_takes_beams_where_nothing_else_is_asked_for(server, command, tmp_path, nbest, flags, beam_size):
    terms = tmp_path / "terms.tsv"
    terms.write_text("a\tb\n")
    file = [str(terms)] if flags == ["--terms"] else []
    assert command("translate", "a", "--nbest", str(nbest), *flags, *file) == 0
    options = server.requests[0].options
    assert options.num_hypotheses == nbest
    assert (options.beam_size if options.HasField("beam_size") else None) == beam_size


def test_json_has_everything(command):
    flags = ["--nbest", "2", "--tokens", "--scores", "--alignment"]
    assert command("translate", "--json", "猫", "b", *flags) == 0
    first, second = map(json.loads, command.out.splitlines())
    shown = {
        "tokens": ["▁the", "▁猫0", "</s>"],
        "token_log_probs": [-0.5, -0.25, -1.0],
        "alignment": [
            {"source_token": 0, "target_token": 0, "weight": 0.5},
            {"source_token": 2, "target_token": 1, "weight": 0.25},
        ],
        "quality": 0.75,
    }
    best = {"text": "猫0", "score": -0.5, "finish_reason": "end_of_sentence"}
    assert first == {
        **best,
        "hypotheses": [
            {**best, **shown},
            {**best, **shown, "text": "猫1", "score": -1.5, "tokens": ["▁the", "▁猫1", "</s>"]},
        ],
        "source_tokens": 3,
        "source_pieces": ["▁", "猫", "</s>"],
        "models": ["zh-en"],
        "versions": {},
        "timing": None,
        "treatment": None,
    }
    assert second["text"] == "b0"


def test_json_has_the_same_keys_whatever_was_asked_for(server, command):
    server.always = None
    assert command("translate", "--json", "猫") == 0
    shown = json.loads(command.out)
    assert shown["hypotheses"][0] == {
        "text": "<猫>",
        "score": -0.5,
        "finish_reason": "end_of_sentence",
        "tokens": [],
        "token_log_probs": [],
        "alignment": [],
        "quality": None,
    }
    assert shown["treatment"] is None
    assert shown["versions"] == {"zh-en": "2@5f1c0a9b3e21"}
    assert shown["timing"] == {"queue": 0.5, "encode": 0.0, "decode": 0.0, "total": 2.0, "cached_texts": 0}


def test_a_score_that_was_not_told_is_null(server, command):
    translation = pb.Translation(hypotheses=[pb.Hypothesis(text="x")])
    server.always = lambda request, context: pb.TranslateResponse(translations=[translation])
    assert command("translate", "--json", "猫") == 0
    shown = json.loads(command.out)
    assert shown["score"] is None
    assert shown["hypotheses"][0]["score"] is None
    assert command("translate", "--scores", "猫") == 0
    assert command.out.endswith("\n\tx\n")


@pytest.mark.parametrize(
    ("flags", "asked"),
    [([], False), (["--json"], False), (["--scores"], True), (["--nbest", "1"], True), (["--nbest", "3"], True)],
)
def test_scores_are_asked_for_where_they_are_written(server, command, flags, asked):
    assert command("translate", "猫", *flags) == 0
    assert server.requests[-1].options.return_token_scores == asked


@pytest.mark.parametrize(
    ("flags", "out"),
    [
        ([], "<a b>\n"),
        (["--split-sentences"], "<a\nb>\n"),
        (["--split-sentences", "--scores"], "-0.500000\t<a b>\n"),
        (["--split-sentences", "--nbest", "1"], "0 ||| <a b> ||| -0.500000\n"),
    ],
)
def test_what_was_typed_on_two_lines_is_written_on_two_lines(server, command, flags, out):
    server.always = None
    assert command("translate", "a\nb", *flags) == 0
    assert command.out == out


def test_lines_of_a_file_stay_lines_whatever_a_translation_holds(server, command, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("a\nb\n")

    found = [pb.Translation(hypotheses=[pb.Hypothesis(text=f"{text}\n\nb\r\nc\rd\u2028e")]) for text in "ab"]
    server.always = lambda request, context: pb.TranslateResponse(translations=found)
    assert command("translate", "--split-sentences", "-i", str(source)) == 0
    assert command.out == "a  b c d\u2028e\nb  b c d\u2028e\n"


@pytest.mark.parametrize(
    ("field", "description", "flags", "told"),
    [
        (
            "options.num_hypotheses",
            "is 9, at most beam_size are returned",
            [],
            "--num-hypotheses: is 9, at most --beam-size",
        ),
        ("options.num_hypotheses", "is 9", ["--nbest", "9"], "--nbest: is 9"),
        ("options.beam_size", "is 9", ["--nbest", "9"], "--nbest: is 9"),
        ("options.beam_size", "is 9", ["--nbest", "2", "--beam-size", "9"], "--beam-size: is 9"),
        ("options.terminology[2].source", "is empty", [], "--terms: is empty"),
        ("options.suppressed_phrases[0]", "is empty", [], "--suppress: is empty"),
        ("options.return_alternatives", "excludes options.seed", [], "--alternatives: excludes --seed"),
        ("options.beam_size", "excludes temperature and top_k", [], "--beam-size: excludes --temperature and --top-k"),
        ("options.target_prefix", "'a seed' is too long", [], "--target-prefix: 'a seed' is too long"),
        ("source_language", "is needed", [], "--source-language: is needed"),
        ("model", "is needed", [], "--model: is needed"),
        ("options.new_option", "is 9", [], "options.new_option: is 9"),
    ],
)
def test_a_refused_option_is_told_by_its_flag(server, command, field, description, flags, told):
    server.always = refuses((field, description))
    assert command("translate", "a", *flags) == 1
    assert command.err.startswith(f"translane translate: {told}")
    assert command.err.count("\n") == 1


def test_all_that_is_refused_is_told(server, command):
    problems = ("options.beam_size", "is 0"), ("texts[1]", "is too long"), ("options.top_p", "")
    server.always = fails(grpc.StatusCode.INVALID_ARGUMENT, "wrong", reason("INVALID_FIELD"), bad_fields(*problems))
    assert command("translate", stdin=b"a\nb\n") == 1
    told = "--beam-size: is 0; standard input, line 2: is too long; wrong"
    assert command.err == f"translane translate: {told}; 0 lines were written to standard output\n"


def test_no_more_than_three_problems_are_told(server, command):
    server.always = refuses(*((f"texts[{index}]", "too long") for index in range(9)))
    assert command("translate", *"abcdefghi") == 1
    assert command.err == "translane translate: text 1: too long; text 2: too long; text 3: too long; and 6 more\n"


def test_nbest_of_the_command_line_wins_over_the_environment(server, command):
    command.environ["TRANSLANE_CLIENT_NUM_HYPOTHESES"] = "7"
    assert command("translate", "a", "--nbest", "2") == 0
    command.environ = {**command.environ, "TRANSLANE_CLIENT_NUM_HYPOTHESES": "", "TRANSLANE_CLIENT_NBEST": "7"}
    assert command("translate", "a", "--num-hypotheses", "1") == 0
    assert [request.options.num_hypotheses for request in server.requests] == [2, 1]
    assert not server.requests[1].options.HasField("beam_size")

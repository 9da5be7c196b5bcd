"""The sentences that are measured are those that the server would make."""

import itertools

import pytest

from helpers.demo import DEMO
from translane.v1 import translation_pb2 as pb
from translane_plan.errors import PlanError
from translane_plan.measuring.samples import MOST_SAMPLES, Sample, read_samples
from translane_server.bundle import load_bundle

if not DEMO.exists():
    pytest.skip("the bundled model is not in this tree", allow_module_level=True)


@pytest.fixture(scope="module")
def bundle():
    return load_bundle(DEMO)


def test_built_in_texts_are_greedy_sentences_with_a_bound(bundle):
    samples = read_samples(bundle, None, "", "")
    assert len(samples.samples) > 5
    for sample in samples.samples:
        options = sample.sentence.options
        assert options.rows == 1
        assert not options.scores
        assert options.max_length == 2 * len(sample.sentence.source_ids) + 8


def test_texts_of_a_file_that_are_one_sentence(bundle, tmp_path):
    path = tmp_path / "texts"
    path.write_text("你好。\n\n我有一只猫。他会说三种语言。\n谢谢。\n", encoding="utf-8")
    samples = read_samples(bundle, path, "", "")
    assert [sample.text for sample in samples.samples] == ["你好。", "谢谢。"]
    path.write_text("谢谢。\n" * (MOST_SAMPLES + 5), encoding="utf-8")
    assert len(read_samples(bundle, path, "", "").samples) == MOST_SAMPLES


def test_requests_take_the_texts_in_turn(bundle, tmp_path):
    path = tmp_path / "texts"
    path.write_text("你好。\n谢谢。\n我有一只猫。\n", encoding="utf-8")
    sent: list[Sample] = []
    samples = read_samples(bundle, path, "", "")
    requests = [pb.TranslateRequest.FromString(each) for each in itertools.islice(samples.requests(2, sent), 3)]
    texts = [text for request in requests for text in request.texts]
    assert texts == ["你好。", "谢谢。", "我有一只猫。"] * 2
    assert [sample.text for sample in sent] == texts
    assert all(request.options.beam_size == 1 for request in requests)


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", "it has no text"), (b"\n \n", "it has no text"), (b"\xff\xfe", "it is not UTF-8")]
)
def test_a_file_without_texts_is_refused(bundle, tmp_path, content, problem):
    path = tmp_path / "texts"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=problem):
        read_samples(bundle, path, "", "")
    with pytest.raises(PlanError, match=r"--texts: .*none: No such file"):
        read_samples(bundle, tmp_path / "none", "", "")


def test_languages_that_the_model_lacks_are_refused(bundle):
    with pytest.raises(PlanError, match="the model cannot be asked to translate: target_language"):
        read_samples(bundle, None, "", "fr")
    with pytest.raises(PlanError, match="there are no built-in texts"):
        read_samples(bundle, None, "sw", "")

import pytest
import sacrebleu

from translane_export.train.evaluate import score


def test_scores_are_sacrebleus_and_signed() -> None:
    hypotheses = ["the cat sat on the mat .", "hello there my friend"]
    references = ["the cat sat on a mat .", "hello there my friend"]
    evaluation = score(hypotheses, references, "en")
    assert evaluation.bleu == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert evaluation.chrf == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert evaluation.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert evaluation.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert f"BLEU {evaluation.bleu:.2f}  nrefs:1" in str(evaluation)


@pytest.mark.parametrize(
    ("language", "tokenizer"), [("zh-Hant", "zh"), ("ja", "char"), ("KO-kr", "char"), ("th", "char"), ("de", "13a")]
)
def test_the_target_language_chooses_the_tokens(language: str, tokenizer: str) -> None:
    evaluation = score(["我有一只猫。"], ["我有一只小猫。"], language)
    assert f"|tok:{tokenizer}|" in evaluation.bleu_signature
    assert (evaluation.bleu > 30) == (tokenizer != "13a")

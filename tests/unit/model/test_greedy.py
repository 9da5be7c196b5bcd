import torch

from translane_export.model import Transformer, TransformerConfig
from translane_export.model.greedy import greedy_decode

CONFIG = TransformerConfig(
    source_vocab_size=40,
    target_vocab_size=40,
    d_model=16,
    encoder_layers=1,
    decoder_layers=1,
    heads=2,
    ffn_size=16,
    max_positions=30,
    dropout=0.5,
)


def _model() -> Transformer:
    torch.manual_seed(3)
    return Transformer(CONFIG)


def _sources(count: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 20, (count,), generator=draw).tolist()
    return [torch.randint(4, 40, (length,), generator=draw).tolist() for length in lengths]


def test_translations_end_at_the_limits_and_the_mode_is_restored() -> None:
    model, sources = _model().train(), _sources(20)
    with torch.no_grad():
        model.output_projection.bias[3] = -100.0  # eos never comes
    lengths = [len(ids) for ids in greedy_decode(model, sources)]
    assert lengths == [min(30, 2 * len(source) + 10) for source in sources]
    assert max(len(ids) for ids in greedy_decode(model, sources, max_length=7)) == 7
    assert model.training


def test_other_markers_and_suppressed_ids_are_the_models() -> None:
    torch.manual_seed(3)
    model = Transformer(CONFIG.changed(bos_id=3, decoder_start_id=0))
    (source,) = _sources(1)
    (ids,) = greedy_decode(model, [[7, *source]], complete=True)
    model.eval()
    memory = model.encode(torch.tensor([[7, *source]]), torch.tensor([len(source) + 1]))
    logits = model.decode(torch.tensor([[0, *ids]]), memory, torch.tensor([len(source) + 1]))[0]
    assert logits.argmax(dim=-1).tolist()[: len(ids)] == ids
    suppressing = Transformer(model.config.changed(suppressed_ids=(ids[0],)))
    suppressing.load_state_dict(model.state_dict())
    assert ids[0] not in greedy_decode(suppressing, [[7, *source]], complete=True)[0]


def test_an_empty_list_and_an_empty_source() -> None:
    model = _model()
    assert greedy_decode(model, []) == []
    assert len(greedy_decode(model, [[]])) == 1

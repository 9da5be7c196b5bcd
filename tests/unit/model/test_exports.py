from __future__ import annotations

import translane_export.model as model


def test_the_package_offers_exactly_this():
    assert sorted(model.__all__) == [
        "PRESETS",
        "TokenLoss",
        "Transformer",
        "TransformerConfig",
        "label_smoothed_cross_entropy",
        "load_word_vectors",
    ]
    assert all(hasattr(model, name) for name in model.__all__)

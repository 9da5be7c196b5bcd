from opennmt import models


def model():
    return models.Transformer(num_layers=(2, 1), num_units=16, num_heads=4, ffn_inner_dim=24)

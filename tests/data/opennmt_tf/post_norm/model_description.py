from opennmt import layers, models


def model():
    return models.Transformer(
        num_layers=(1, 2),
        num_units=16,
        num_heads=2,
        ffn_inner_dim=24,
        pre_norm=False,
        output_layer_bias=False,
        mha_bias=False,
        ffn_activation=layers.gelu,
        share_embeddings=models.EmbeddingsSharingLevel.ALL,
    )

from opennmt import layers, models


def model():
    return models.Transformer(
        num_layers=1,
        num_units=16,
        num_heads=2,
        ffn_inner_dim=24,
        position_encoder_class=layers.PositionEmbedder,
        share_embeddings=models.EmbeddingsSharingLevel.SOURCE_TARGET_INPUT,
    )

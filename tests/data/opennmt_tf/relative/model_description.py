import tensorflow as tf
from opennmt import models


def model():
    return models.Transformer(
        num_layers=1,
        num_units=16,
        num_heads=2,
        ffn_inner_dim=24,
        position_encoder_class=None,
        maximum_relative_position=3,
        ffn_activation=tf.nn.swish,
        share_embeddings=models.EmbeddingsSharingLevel.TARGET,
    )

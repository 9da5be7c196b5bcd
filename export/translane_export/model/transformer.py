"""The encoder-decoder Transformer of "Attention Is All You Need" (https://arxiv.org/abs/1706.03762)."""

from __future__ import annotations

from torch import Tensor, nn

from translane_export.model.attention import MultiHeadAttention
from translane_export.model.config import TransformerConfig
from translane_export.model.decoder import Decoder
from translane_export.model.encoder import Encoder


class Transformer(nn.Module):
    """Encoder, decoder and the projection to target-vocabulary logits.

    Ids are padded on the right with the config's pad_id; every source length is at least 1.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        # The paper's projection has no bias; with one (zero at first) checkpoints of models that have it fit too.
        self.output_projection = nn.Linear(config.d_model, config.target_vocab_size, bias=config.biases)
        self._initialize()
        self._tie()

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Predict each next target token, given the ones before it (teacher forcing).

        Shapes: source_ids [B, S] and source_lengths [B], target_ids [B, T] starting with start_id; all int64.
        Returns logits [B, T, V].
        """
        # what the decoder starts with may be the padding id
        target_lengths = 1 + (target_ids[:, 1:] != self.config.pad_id).sum(dim=1)  # [B]
        memory = self.encode(source_ids, source_lengths)
        return self.decode(target_ids, memory, source_lengths, target_lengths)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Tensor:
        """Encode source_ids [B, S] of source_lengths [B]: -> memory [B, S, M]."""
        memory: Tensor = self.encoder(source_ids, source_lengths)
        return memory

    def decode(
        self, target_ids: Tensor, memory: Tensor, source_lengths: Tensor, target_lengths: Tensor | None = None
    ) -> Tensor:
        """Decode target_ids [B, T] over memory [B, S, M]: -> logits [B, T, V]."""
        return self.project(self.decoder(target_ids, memory, source_lengths, target_lengths))

    def project(self, x: Tensor) -> Tensor:
        """Turn the decoder's output x [..., M] into logits [..., V]."""
        if self.config.logit_scale != 1:
            x = x * self.config.logit_scale
        logits: Tensor = self.output_projection(x)
        return logits

    def _initialize(self) -> None:
        """Xavier-uniform projections with zero biases; embeddings normal with deviation 1/√M, padding zero."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
                if module.padding_idx is not None:
                    nn.init.zeros_(module.weight[module.padding_idx])
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                # As if Q, K and V were one [3·H·D, M] matrix, which torch.nn.Transformer and fairseq train best from.
                for projection in (module.q_proj, module.k_proj, module.v_proj):
                    nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        if self.config.proximal_init:  # a query looks at its like first, as in Glow-TTS and VITS
            for layer in (*self.encoder.layers, *self.decoder.layers):
                attention = layer.get_submodule("self_attention")
                attention.get_submodule("k_proj").load_state_dict(attention.get_submodule("q_proj").state_dict())
        nn.init.normal_(self.output_projection.weight, std=self.config.d_model**-0.5)

    def _tie(self) -> None:
        if self.config.tie_embeddings in ("two-way", "three-way"):
            self.output_projection.weight = self.decoder.embedding.tokens.weight
        if self.config.tie_embeddings == "three-way":
            self.encoder.embedding.tokens.weight = self.decoder.embedding.tokens.weight

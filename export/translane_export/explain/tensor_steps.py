"""The tensors that a token passes, noted with their shapes in letters and numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class TensorStep:
    """A tensor on the way.

    Attributes:
        part: where it is: a stack, or a layer such as "decoder layer 0".
        name: the name of the tensor.
        module: the module that makes it, as PyTorch names it; "" if no module does.
        symbols: its shape in letters; see `SYMBOLS`.
        shape: its shape in numbers.
        what: what happens, in a sentence.
        formula: the same as a formula.
    """

    part: str
    name: str
    module: str
    symbols: tuple[str, ...]
    shape: tuple[int, ...]
    what: str
    formula: str

    @property
    def shape_text(self) -> str:
        """The shape in letters and numbers: "[B, 1, M] = [1, 1, 256]"."""
        return f"[{', '.join(self.symbols)}] = [{', '.join(map(str, self.shape))}]"


SYMBOLS = {
    "B": "sentences, here 1",
    "S": "source tokens",
    "T": "target tokens so far",
    "H": "heads",
    "D": "size of a head's queries and keys",
    "G": "heads of keys and values",
    "E": "size of a head's values",
    "M": "model size",
    "F": "feed-forward size",
    "V": "target vocabulary",
}


@dataclass
class TensorNotes:
    """Collects the steps of one stack.

    Attributes:
        sizes: the number that each letter stands for.
        queries: the tokens on their way: "S", all of the encoder's, or "1", the decoder's last one.
        keys: the letter of the tokens that self-attention looks at.
        biases: whether projections add a bias.
        steps: what is noted.
        part: the part of the next steps.
    """

    sizes: dict[str, int]
    queries: str
    keys: str
    biases: bool
    steps: list[TensorStep] = field(default_factory=list)
    part: str = ""

    def add(self, name: str, module: str, symbols: str, tensor: Tensor, what: str, formula: str) -> None:
        """Note a tensor whose shape is `symbols`; "Q" stands for the tokens on their way."""
        letters = tuple(symbols.replace("Q", self.queries).split())
        axis = symbols.split().index("Q") if "Q" in symbols else None
        if axis is not None and self.queries == "1":
            tensor = tensor.narrow(axis, tensor.shape[axis] - 1, 1)  # the token on its way is the last one
        shape = tuple(tensor.shape)
        assert shape == tuple(self.sizes.get(letter, 1) for letter in letters), (name, shape, letters)
        formula = formula if self.biases else formula.removesuffix(" + b")
        self.steps.append(TensorStep(self.part, name, module, letters, shape, what, formula))

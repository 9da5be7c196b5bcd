"""Sets of banned tokens, shared by the rows that ban the same ones."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from translane_server.backend import BoolArray


class MaskTable:
    """Masks of V tokens, numbered; mask 0 bans nothing. A number holds as long as someone has acquired it."""

    def __init__(self, vocab_size: int) -> None:
        self.masks: BoolArray = np.zeros((1, vocab_size), np.bool_)  # [M, V]
        self._numbers: dict[Hashable, int] = {}
        self._users: dict[Hashable, int] = {}
        self._free: list[int] = []

    def acquire(self, key: Hashable, banned: npt.NDArray[np.integer] | BoolArray) -> int:
        """The number of the mask `key`, whose tokens are `banned`: ids, or a mask of the vocabulary."""
        if key not in self._numbers:
            if not self._free:
                self._free.append(len(self.masks))
                self.masks = np.concatenate([self.masks, np.zeros_like(self.masks[:1])])
            number = self._numbers[key] = self._free.pop()
            self._users[key] = 0
            self.masks[number] = False
            self.masks[number, banned] = True
        self._users[key] += 1
        return self._numbers[key]

    def release(self, key: Hashable) -> None:
        """Give back what `acquire` gave."""
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            self._free.append(self._numbers.pop(key))

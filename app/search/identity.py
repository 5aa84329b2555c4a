"""Which embedder a collection was filled by.

Two embedders may have the same dimension and place the same words in quite different directions: a search would then
find anything, without an error. So a collection keeps, among its properties, the name of its embedder and where that
one places a fixed sentence. A name alone would not do: the same model has other names elsewhere, and another revision
has the same.

    parley.embedder   the name in PARLEY_EMBEDDER
    parley.probe      Base64 of the first `_DIMENSIONS` components of the sentence's unit vector, as signed bytes
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

NAME = "parley.embedder"
PROBE = "parley.probe"
_SENTENCE = "Where is my order 4711? It was sent on Monday, and nothing has come yet."
_DIMENSIONS = 256
_ALIKE = 0.98  # other hardware and data types give 0.9999, another model some 0.1


class Embeds(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> npt.NDArray[np.float32]: ...


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    probe: npt.NDArray[np.float32]

    @classmethod
    async def of(cls, embedder: Embeds) -> Identity:
        return cls(embedder.name, (await embedder.embed([_SENTENCE]))[0][:_DIMENSIONS])

    @classmethod
    def read(cls, properties: Mapping[str, Any]) -> Identity | None:
        """What the properties of a collection say, None where they say nothing."""
        if not properties.get(PROBE):
            return None
        stored = np.frombuffer(base64.b64decode(properties[PROBE]), dtype=np.int8)
        return cls(str(properties.get(NAME, "")), stored.astype(np.float32))

    def properties(self) -> dict[str, str]:
        scaled = np.round(self.probe * (127 / max(1e-9, float(np.abs(self.probe).max()))))
        return {NAME: self.name, PROBE: base64.b64encode(scaled.astype(np.int8).tobytes()).decode()}

    def likeness(self, other: Identity) -> float:
        """The cosine of the two probes; 0 for probes of different length."""
        if len(self.probe) != len(other.probe):
            return 0.0
        lengths = float(np.linalg.norm(self.probe) * np.linalg.norm(other.probe))
        return float(self.probe @ other.probe) / lengths if lengths else 0.0

    def is_same(self, other: Identity) -> bool:
        return self.likeness(other) >= _ALIKE

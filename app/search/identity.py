"""Which embedder has filled a collection.

Two embedders may have the same dimension and map the same words to unrelated directions; a search would then return
arbitrary rows without an error. A collection therefore stores, in its properties, the name of its embedder and the
vector of a fixed sentence. The name alone is not enough: the same model may have other names elsewhere, and another
revision has the same name.

    parley.embedder   the name in PARLEY_EMBEDDER
    parley.probe      Base64 of the first `_DIMENSIONS` components of the sentence's unit vector, as signed bytes
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from models.embedder.embedder import Embeds

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Vector: TypeAlias = "npt.NDArray[np.float32]"

NAME = "parley.embedder"
PROBE = "parley.probe"
_SENTENCE = "Where is my order 4711? It was sent on Monday, and nothing has come yet."
_DIMENSIONS = 256
_ALIKE = 0.98  # other hardware and data types give 0.9999, another model about 0.1


@dataclass(frozen=True, slots=True)
class EmbedderMark:
    name: str
    probe: Vector

    @classmethod
    async def of(cls, embedder: Embeds) -> EmbedderMark:
        return cls(embedder.name, (await embedder.embed([_SENTENCE]))[0][:_DIMENSIONS])

    @classmethod
    def read(cls, properties: Mapping[str, Any]) -> EmbedderMark | None:
        """The identity in a collection's properties, None if they have none."""
        if not properties.get(PROBE):
            return None
        import numpy as np  # commands name vectors and have none

        stored = np.frombuffer(base64.b64decode(properties[PROBE]), dtype=np.int8)
        return cls(str(properties.get(NAME, "")), stored.astype(np.float32))

    def properties(self) -> dict[str, str]:
        scaled = (self.probe * (127 / max(1e-9, float(abs(self.probe).max())))).round()
        return {NAME: self.name, PROBE: base64.b64encode(scaled.astype("int8").tobytes()).decode()}

    def likeness(self, other: EmbedderMark) -> float:
        """Cosine of the two probes; 0 if their lengths differ."""
        if len(self.probe) != len(other.probe):
            return 0.0
        lengths = math.hypot(*self.probe) * math.hypot(*other.probe)
        return float(self.probe @ other.probe) / lengths if lengths else 0.0

    def is_same(self, other: EmbedderMark) -> bool:
        return self.likeness(other) >= _ALIKE

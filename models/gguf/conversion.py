"""From a GGUF file to a folder with safetensors and `tokenizer.json`, kept in Hugging Face's cache."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from models.checkpoint_files import CheckpointError, digest, first_line
from models.gguf.architecture import check_architecture, read_config
from models.gguf.file import GgufFile, read_gguf
from models.gguf.spelling import check_spelling
from models.gguf.tokenizer import build_tokenizer
from models.gguf.vocabulary import GgufVocabulary, read_vocabulary

log = logging.getLogger(__name__)

CONVERSION = 1
"""Another number converts every file again."""
TEMPLATE = "chat_template.jinja"


def cache_folder() -> Path:
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "parley-gguf"


def convert_gguf(path: Path) -> Path:
    """The folder that holds the model of `path`; a second call returns the same.

    A file without a chat template has that of the file `chat_template.jinja` beside it. Raises `CheckpointError` with
    one line that does not name the model.
    """
    template = path.with_name(TEMPLATE)
    sources = [path, *([template] if template.is_file() else [])]
    version = hashlib.sha256(f"{CONVERSION} {digest(sources)}".encode()).hexdigest()[:12]
    target = cache_folder() / f"{path.stem}-{version}"
    if target.is_dir():
        return target
    log.info("converting %s into %s: once, a minute or more", path.name, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".converting-", dir=target.parent))
    try:
        _convert(path, made)
        with suppress(OSError):  # another worker was faster; what it made is the same
            made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _convert(path: Path, folder: Path) -> None:
    file = read_gguf(path)
    check_architecture(file)
    vocabulary = read_vocabulary(file.of_tokenizer())
    tokenizer = build_tokenizer(vocabulary)
    check_spelling(tokenizer, vocabulary)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = file.values.get("tokenizer.chat_template")
    if template is None and path.with_name(TEMPLATE).is_file():
        template = path.with_name(TEMPLATE).read_text(encoding="utf-8")
    if template is not None:
        (folder / TEMPLATE).write_text(template, encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(vocabulary))
    _write_json(folder / "generation_config.json", {"eos_token_id": sorted(vocabulary.ends)})
    try:
        _write_model(file, vocabulary, folder)
    except CheckpointError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError) as error:
        raise CheckpointError(f"{path.name} cannot be converted: {first_line(error)}") from error


def _write_model(file: GgufFile, vocabulary: GgufVocabulary, folder: Path) -> None:
    from safetensors.torch import save_file

    from models.gguf.weights import read_weights

    config = read_config(file)
    weights = read_weights(file, config)
    config.bos_token_id, config.eos_token_id = vocabulary.bos, vocabulary.eos
    config.pad_token_id = vocabulary.padding
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]
    config.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    written.pop("transformers_version", None)  # the version of the model is a digest of its files
    _write_json(folder / "config.json", written)


def _tokenizer_config(vocabulary: GgufVocabulary) -> dict[str, Any]:
    numbers = {
        "bos_token": vocabulary.bos,
        "eos_token": vocabulary.eos,
        "unk_token": vocabulary.unknown,
        "pad_token": vocabulary.padding,
    }
    named = {name: vocabulary.token(number) for name, number in numbers.items() if number is not None}
    return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **named}


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")

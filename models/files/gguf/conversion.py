"""From a GGUF file to a folder with safetensors and `tokenizer.json`, kept in Hugging Face's cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from models.files.digests import digest
from models.files.errors import CheckpointError, first_line
from models.files.gguf.architecture import check_architecture, read_config
from models.files.gguf.file import GgufFile, read_gguf
from models.files.gguf.spelling import check_spelling
from models.files.gguf.tokenizer import build_tokenizer
from models.files.gguf.vocabulary import GgufVocabulary, read_vocabulary

log = logging.getLogger(__name__)

CONVERSION = 1
"""Another number converts every file again."""
TEMPLATE = "chat_template.jinja"
WEIGHTS = "model.safetensors"
UNFINISHED = ".converting-"
_CONVERTING = threading.RLock()


def cache_folder() -> Path:
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "parley-gguf"


def convert_gguf(path: Path) -> Path:
    """The folder that holds the model of `path`; a second call returns the same.

    A file without a chat template has that of the file `chat_template.jinja` beside it, in a folder of its own with
    the same weights. Raises `CheckpointError` with one line that does not name the model.
    """
    version = hashlib.sha256(f"{CONVERSION} {digest([path])}".encode()).hexdigest()[:12]
    folder = cache_folder() / f"{path.stem}-{version}"
    if not folder.is_dir():
        _convert_once(path, folder)
    template = path.with_name(TEMPLATE)
    if (folder / TEMPLATE).is_file() or not template.is_file():
        return folder
    return _with_template(folder, template.read_text(encoding="utf-8"))


def _convert_once(path: Path, target: Path) -> None:
    with _alone(target.parent):
        if target.is_dir():
            return  # another process was faster
        for unfinished in target.parent.glob(f"{UNFINISHED}*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        begun = time.monotonic()
        log.info("converting %s into %s: once, a minute or more", path.name, target)
        with _written(target) as made:
            _convert(path, made)
        size = (target / WEIGHTS).stat().st_size
        log.info("converted %s in %.0f s: %s has %s", path.name, time.monotonic() - begun, target, _megabytes(size))
        for other in _others(path, target):
            size = (other / WEIGHTS).stat().st_size
            log.info("%s (%s) is of another %s: remove it if it is out of use", other, _megabytes(size), path.name)


def _with_template(folder: Path, template: str) -> Path:
    """A folder with the same files, which take no more room, and this template."""
    target = folder.with_name(f"{folder.name}-{hashlib.sha256(template.encode()).hexdigest()[:8]}")
    if not target.is_dir():
        with _written(target) as made:
            for file in folder.iterdir():
                try:
                    (made / file.name).hardlink_to(file)
                except OSError:  # a file system without links
                    shutil.copyfile(file, made / file.name)
            (made / TEMPLATE).write_text(template, encoding="utf-8")
    return target


@contextmanager
def _written(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` when it is whole; what a process leaves that was killed is never used."""
    made = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=target.parent))
    try:
        yield made
        with suppress(OSError):  # another process was faster; what it made is the same
            made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One at a time converts; the lock ends with its process."""
    folder.mkdir(parents=True, exist_ok=True)
    with _CONVERTING, folder.with_suffix(".lock").open("w") as lock:
        with suppress(OSError):  # a file system without locks
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("waiting for another process, which converts a file into %s", folder)
                fcntl.lockf(lock, fcntl.LOCK_EX)
        yield


def _others(path: Path, target: Path) -> list[Path]:
    """Conversions of files of the same name, with weights of their own."""
    named = re.compile(re.escape(path.stem) + "-[0-9a-f]{12}")
    folders = (one for one in sorted(target.parent.iterdir()) if named.fullmatch(one.name) and one != target)
    return [one for one in folders if (one / WEIGHTS).is_file()]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _convert(path: Path, folder: Path) -> None:
    file = read_gguf(path)
    check_architecture(file)
    vocabulary = read_vocabulary(file.of_tokenizer())
    tokenizer = build_tokenizer(vocabulary)
    check_spelling(tokenizer, vocabulary)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = file.values.get("tokenizer.chat_template")
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

    from models.files.gguf.weights import read_weights

    config = read_config(file)
    weights = read_weights(file, config)
    config.bos_token_id, config.eos_token_id = vocabulary.bos, vocabulary.eos
    config.pad_token_id = vocabulary.padding
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
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

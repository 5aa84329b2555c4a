"""GGUF files of models of transformers, written with llama.cpp's own package."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.models import tiny

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2", "gemma3_text": "gemma3"}
"""By transformers' kind."""


def model(kind: str) -> Any:
    changes: dict[str, Any] = {}
    if kind.startswith("gemma"):
        changes = {"query_pre_attn_scalar": 16, "sliding_window": 32, "num_hidden_layers": 7}
    return tiny.model(kind, **changes)


@dataclass
class Contents:
    """What is written. A test changes `values` and `tensors` first."""

    architecture: str
    values: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    def write(self, path: Path, *, quantized: str = "F32") -> Path:
        import gguf  # noqa: PLC0415 - an extra

        writer = gguf.GGUFWriter(path, self.architecture)
        for name, value in self.values.items():
            kind = gguf.GGUFValueType.get_type(value)
            if kind is gguf.GGUFValueType.INT32 and value >= 0:
                kind = gguf.GGUFValueType.UINT32  # llama.cpp wants no other one
            element = gguf.GGUFValueType.get_type(value[0]) if isinstance(value, list) else None
            writer.add_key_value(name, value, kind, sub_type=element)
        as_type = gguf.GGMLQuantizationType[quantized]
        for name, tensor in self.tensors.items():
            its = gguf.GGMLQuantizationType.F32 if tensor.ndim == 1 else as_type
            writer.add_tensor(name, gguf.quantize(tensor, its), raw_dtype=its)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def contents(kind: str, made: Any, vocabulary: dict[str, Any] | None = None) -> Contents:
    """`vocabulary`: the keys of the tokenizer; those of tiny's if there is none."""
    config, architecture = made.config, ARCHITECTURES[kind]
    its = {
        "context_length": config.max_position_embeddings,
        "block_count": config.num_hidden_layers,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
    }
    rope = config.rope_parameters
    its["rope.freq_base"] = float(rope.get("full_attention", rope)["rope_theta"])
    if kind.startswith("gemma"):
        its["attention.sliding_window"] = config.sliding_window
    else:
        its["rope.dimension_count"] = config.head_dim
    if kind == "gemma2":
        its |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    values = {f"{architecture}.{key}": value for key, value in its.items()}
    vocabulary = byte_level() if vocabulary is None else vocabulary
    return Contents(architecture, values | vocabulary, tensors(architecture, made))


def byte_level(tokenizer: Any = None, template: str = tiny.TEMPLATE) -> dict[str, Any]:
    """Keys of a tokenizer, tiny's if there is none; its words are cut as GPT-2's are."""
    tokenizer = tiny.tokenizer() if tokenizer is None else tokenizer
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = sorted(backend["model"]["vocab"], key=backend["model"]["vocab"].get)
    special = {token["content"] for token in backend["added_tokens"]}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in backend["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
        "tokenizer.ggml.padding_token_id": tokenizer.pad_token_id,
        "tokenizer.chat_template": template,
    }


def tensors(architecture: str, made: Any) -> dict[str, np.ndarray]:
    import gguf  # noqa: PLC0415 - an extra

    number = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(number, made.config.num_hidden_layers)
    written = {}
    for name, weight in made.state_dict().items():
        if name == "lm_head.weight" and made.config.tie_word_embeddings:
            continue
        stem, _, suffix = name.rpartition(".")
        values = weight.float().numpy().copy()
        if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
            values = _interleaved(values, made.config.head_dim)
        if architecture.startswith("gemma") and stem.endswith("norm"):
            values += 1
        written[f"{names.get_name(stem)}.{suffix}"] = values
    return written


def _interleaved(weight: np.ndarray, head: int) -> np.ndarray:
    """llama.cpp rotates neighbours in Llama's heads, transformers one half with the other. Also for a bias."""
    return weight.reshape(-1, 2, head // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)

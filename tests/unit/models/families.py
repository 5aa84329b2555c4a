"""The families of models that people run: a tiny random model of each, and the constructs of its template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_ALTERNATING = {
    "sliding_window": 24,
    "num_hidden_layers": 3,
    "query_pre_attn_scalar": 16,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}


@dataclass(frozen=True, slots=True)
class Family:
    """kind, changes: The architecture, as transformers names it, and what its config has beside the tiny sizes.
    shape: The template's file in `templates`.
    refused: Why the engine does not compute it; empty if it does.
    """

    kind: str
    shape: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "Qwen 2.5": Family("qwen2", "qwen25"),
        "Qwen 3": Family("qwen3", "qwen3"),
        "Qwen 3.5": Family("qwen3_5_text", "qwen35", refused="layers of kind linear_attention"),
        "Llama 3": Family("llama", "llama31"),
        "Mistral 7B v0.3": Family("mistral", "mistral7b", {"sliding_window": None}),
        "Mistral Nemo": Family("mistral", "nemo", {"sliding_window": None, "head_dim": 32}),
        "Mistral Small": Family("mistral", "mistral_small", {"sliding_window": None}),
        "Gemma 2": Family("gemma2", "gemma2", {"sliding_window": 24, "query_pre_attn_scalar": 16}),
        "Gemma 3": Family("gemma3_text", "gemma3", _ALTERNATING),
        "Phi-4-mini": Family("phi3", "phi4mini", {"sliding_window": None, "partial_rotary_factor": 0.75}),
        "SmolLM2": Family("llama", "smollm2"),
        "SmolLM3": Family("smollm3", "smollm3"),
        "DeepSeek-R1-Distill (Qwen)": Family("qwen2", "r1"),
        "DeepSeek-R1-Distill (Llama)": Family("llama", "r1"),
        "gpt-oss": Family(
            "gpt_oss",
            "harmony",
            {"num_local_experts": 4},
            "a feature that the engine does not implement",
        ),
        "Granite 3": Family("granite", "granite"),
        "Granite 4 (attention only)": Family(
            "granitemoehybrid",
            "granite4",
            {"layer_types": ["attention", "attention"], "num_local_experts": 0, "shared_intermediate_size": 96},
        ),
        "OLMo 2": Family("olmo2", "olmo2"),
        "GLM-4": Family("glm4", "glm4"),
    }
)

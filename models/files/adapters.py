"""LoRA adapters in PEFT's format: a config, and two small matrices for each linear layer that they change.

`y = W x + scale * B (A x)` (Hu et al. 2021), where `scale` is alpha / rank, or alpha / sqrt(rank) with rsLoRA. Anything
else that an adapter may contain (DoRA, trained biases, whole modules, embeddings) is rejected, because ignoring it
would give silently wrong answers. Safetensors only: a pickle runs code.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from models.files.adapter_folders import CONFIG
from models.interface.unexpected import type_and_line

log = logging.getLogger(__name__)

WEIGHTS = "adapter_model.safetensors"
_KEY = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<part>[AB])(?:\.default)?\.weight")
# PEFT's settings that are implemented, or that change nothing about weights that are trained.
_KNOWN = frozenset(
    {
        *("peft_type", "peft_version", "task_type", "base_model_name_or_path", "revision", "inference_mode"),
        *("auto_mapping", "r", "lora_alpha", "lora_dropout", "use_rslora", "rank_pattern", "alpha_pattern"),
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "megatron_config"),
        *("megatron_core", "qalora_group_size", "loftq_config", "eva_config", "corda_config", "lora_ga_config"),
    }
)
# Those that change the computation, with the values at which they do not. Any other setting has to be off.
_OFF: Mapping[str, tuple[Any, ...]] = {
    "bias": (None, "none"),
    # Others also change the weights of the model itself.
    "init_lora_weights": (None, True, False, "gaussian", "orthogonal", "eva"),
}
_IS_OFF: tuple[Any, ...] = (None, False, 0, "", [], {})
_NAME = re.compile(r"\^?[\w.]+\$?")
_LONGEST_REASON = 200


class AdapterError(Exception):
    """An adapter cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """An adapter on disk as it was when the worker started. `version` identifies its bytes."""

    name: str
    folder: Path
    version: str

    @classmethod
    def find(cls, name: str, folder: Path) -> AdapterFiles:
        """Raises `AdapterError` if the folder has no adapter; its content is checked when it is loaded."""
        if not (folder / CONFIG).is_file():
            raise AdapterError(f"adapter {name}: there is no {CONFIG} in {folder}")
        return cls(name, folder, f"{name}@{_digest(*_read(folder))}")

    @property
    def rank(self) -> int:
        """The largest rank of its matrices, by its config; raises `AdapterError` for another kind of adapter."""
        try:
            config = json.loads((self.folder / CONFIG).read_bytes())
            _check_kind(config)
            return max(int(config["r"]), *map(int, (config.get("rank_pattern") or {}).values()), 1)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise AdapterError(f"adapter {self.name}: {type(error).__name__}: {error}"[:_LONGEST_REASON]) from error


@dataclass(frozen=True, slots=True)
class LowRank:
    """An adapter's addition to one linear layer: `down` [rank, in], `up` [out, rank] including the scale."""

    down: Tensor
    up: Tensor

    @property
    def rank(self) -> int:
        return len(self.down)

    @property
    def nbytes(self) -> int:
        return self.down.nbytes + self.up.nbytes


Adapter = dict[str, LowRank]  # by the layer's name in the model


def load_adapter(files: AdapterFiles, layers: Mapping[str, tuple[int, int]], like: Tensor) -> Adapter:
    """Read an adapter for a model with these linear `layers` (in, out), to the device and dtype of `like`.

    Raises:
        AdapterError: it is unsupported, broken, made for another model, or has changed since the start.
    """
    try:
        raw, weights = _read(files.folder)
        if files.version != f"{files.name}@{_digest(raw, weights)}":
            raise ValueError("its files have changed; restart the worker to use them")
        config = json.loads(raw)
        _check_kind(config)
        if not weights:
            raise ValueError(f"there is no {WEIGHTS}; other formats, pickles in particular, are not read")
        return _fitted(config, load(weights), layers, like)
    except (ValueError, TypeError, KeyError, AttributeError, SafetensorError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise AdapterError(f"adapter {files.name}: {line[:_LONGEST_REASON]}") from error
    except Exception as error:  # also of the disk, whose errors name paths
        log.warning("adapter %s cannot be read: %s", files.name, type_and_line(error))
        raise AdapterError(f"adapter {files.name}: it cannot be read ({type(error).__name__})") from error


def _check_kind(config: dict[str, Any]) -> None:
    if (kind := config.get("peft_type")) != "LORA":
        raise ValueError(f"its type is {kind}; only LORA is implemented")
    for name, value in config.items():
        if name not in _KNOWN and value not in _OFF.get(name, _IS_OFF):
            raise ValueError(f"it uses {name[:_LONGEST_REASON]}, which is not implemented")


def _fitted(
    config: dict[str, Any], weights: dict[str, Tensor], layers: Mapping[str, tuple[int, int]], like: Tensor
) -> Adapter:
    weights_of: dict[str, dict[str, Tensor]] = {}
    for key, weight in sorted(weights.items()):
        match = _KEY.fullmatch(key)
        if match is None:
            raise ValueError(f"it has {key}, which is not implemented")
        weights_of.setdefault(match["module"], {})[match["part"]] = weight
    if not weights_of:
        raise ValueError("it changes nothing")
    return {module: _delta(config, module, parts, layers, like) for module, parts in weights_of.items()}


def _delta(
    config: dict[str, Any],
    module: str,
    parts: dict[str, Tensor],
    layers: Mapping[str, tuple[int, int]],
    like: Tensor,
) -> LowRank:
    if module not in layers:
        raise ValueError(f"it does not fit the model, which has no layer {module} that an adapter can change")
    if len(parts) != 2:
        raise ValueError(f"it contains only one of the two matrices for {module}")
    down, up = parts["A"], parts["B"]
    wanted, given = layers[module], (down.shape[-1], up.shape[0])
    if given != wanted or down.shape[0] != up.shape[-1]:
        raise ValueError(
            f"it does not fit the model: {module} is {wanted[0]} to {wanted[1]}, not {given[0]} to {given[1]}"
        )
    if not (down.isfinite().all() and up.isfinite().all()):
        raise ValueError(f"its matrices for {module} are not finite")
    up = up.float() * _scale(config, module, len(down))
    if not up.isfinite().all():
        raise ValueError(f"its scale for {module} is too large")
    return LowRank(down.to(like).contiguous(), up.to(like).contiguous())


def _scale(config: dict[str, Any], module: str, rank: int) -> float:
    alpha = float(_pattern(config.get("alpha_pattern"), module, config["lora_alpha"]))
    expected = int(_pattern(config.get("rank_pattern"), module, config["r"]))
    if expected != rank:
        raise ValueError(f"its config says rank {expected} for {module}, its weights have {rank}")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _pattern(patterns: dict[str, Any] | None, module: str, default: Any) -> Any:
    """PEFT's rule: the first pattern that equals the whole name or its end. PEFT reads an expression and writes a name;
    anything else is refused, because an expression can run for ever.
    """
    for pattern, value in (patterns or {}).items():
        written = pattern.replace("\\.", ".")
        if not _NAME.fullmatch(written):
            raise ValueError("a pattern of its config is no name of a layer")
        name = written.strip("^$")
        if module == name or (not written.startswith("^") and module.endswith(f".{name}")):
            return value
    return default


def _read(folder: Path) -> tuple[bytes, bytes]:
    """Config and weights. Read into memory, not mapped: if a mapped file is rewritten, the process gets a bus error."""
    weights = folder / WEIGHTS
    return (folder / CONFIG).read_bytes(), weights.read_bytes() if weights.is_file() else b""


def _digest(config: bytes, weights: bytes) -> str:
    return hashlib.sha256(hashlib.sha256(config).digest() + hashlib.sha256(weights).digest()).hexdigest()[:12]

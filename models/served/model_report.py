"""What a checkpoint is, for people and programs: what is loaded, in which memory, and how its prompts look."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from models.text.plain_dialogue import PLAIN_ROLES


class EnginePath(enum.StrEnum):
    """What computes the model: the engine's own forward, transformers' model classes, or vLLM."""

    FUSED = "fused"
    TRANSFORMERS = "transformers"
    VLLM = "vllm"


class Rendering(enum.StrEnum):
    """Who writes a part of a conversation into the prompt: the chat template, or Parley as plain text."""

    TEMPLATE = "template"
    TEXT = "text"


class Thinking(enum.StrEnum):
    """`OPENED`: the prompt ends inside `<think>`. `POSSIBLE`: the template or the vocabulary has that tag."""

    OPENED = "opened"
    POSSIBLE = "possible"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class TemplateSummary:
    """How a conversation becomes a prompt: by the chat template or, without one, as plain `dialogue`. `neighbours` are
    messages of one role after each other, `tool_format` is the form of calls.
    """

    dialogue: Rendering
    system: Rendering
    neighbours: Rendering
    tools: Rendering
    calls: Rendering
    tool_format: str
    calls_per_message: Literal["one", "several"]
    thinking: Thinking


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """The order is that of its JSON.

    threads: Of the processor that compute; None where another device or program computes.
    parameters: None where the engine does not show them.
    products: The forms of the `layers` and of the `vocabulary` (models/weights/forms.py), empty under vLLM.
    without_kernels: Why a CPU's steps are not computed by kernels (models/kernels); None where they are, and elsewhere.
    weights_bytes: As loaded, with copies in another order.
    kv_bytes_per_token: None for an attention that keeps something else.
    kv_cache_tokens: Of all answers together; None where another program has the cache.
    ends: Texts of `eos_token_ids`.
    generation_defaults: What a request gets that sets nothing.
    generation_ignored: Keys of generation_config.json that are not applied.
    warnings: One line each.
    """

    model: str
    model_version: str
    architecture: str
    engine_path: EnginePath
    device: str
    without_kernels: str | None = None
    threads: int | None = None
    parameters: int | None
    dtype: str
    dtype_reason: str
    products: Mapping[str, str]
    weights_bytes: int
    kv_bytes_per_token: int | None
    kv_cache_tokens: int | None = None
    context_length: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    ends: tuple[str, ...]
    chat_template: TemplateSummary
    generation_defaults: Mapping[str, float]
    generation_ignored: Mapping[str, Any]
    adapters: tuple[str, ...] = ()
    warnings: tuple[str, ...]

    @property
    def table(self) -> list[tuple[str, str]]:
        """The report for a terminal: names of rows and their texts, without the warnings."""
        slow = "" if self.without_kernels is None else f", without kernels: {self.without_kernels}"
        rows = [
            ("model", self.model_version),
            ("architecture", f"{self._named}, computed by the {self.engine_path} path on {self.device}{slow}"),
            ("dtype", f"{self.dtype}: {self.dtype_reason}"),
            ("products", ", ".join(f"{name} {form}" for name, form in self.products.items())),
            ("memory", self._memory),
            ("context", f"{self.context_length:,} tokens; vocabulary of {self.vocab_size:,}"),
            ("ends", self._ends),
            *self._template,
            ("defaults", _listed(self.generation_defaults)),
            ("not applied", _listed(self.generation_ignored)),
            ("adapters", ", ".join(self.adapters)),
        ]
        return [(name, text) for name, text in rows if text]

    @property
    def summary(self) -> str:
        """What whoever starts a worker wants to know, in one line."""
        threads = "" if self.threads is None else f", {self.threads} thread{'s' if self.threads > 1 else ''}"
        cache = [f"weights {_size(self.weights_bytes)}"]
        if self.kv_cache_tokens is not None:
            size = f"{_size(self.kv_bytes_per_token * self.kv_cache_tokens)}, " if self.kv_bytes_per_token else ""
            cache.append(f"KV cache {size}{self.kv_cache_tokens:,} tokens")
        return (
            f"{self._named}; {self.dtype} on {self.device}{threads}; context {self.context_length:,} tokens; "
            f"{', '.join(cache)}{'; adapters ' if self.adapters else ''}{', '.join(self.adapters)}"
        )

    @property
    def _named(self) -> str:
        return (
            self.architecture
            if self.parameters is None
            else f"{self.architecture}, {_count(self.parameters)} parameters"
        )

    @property
    def _memory(self) -> str:
        parts = [f"weights {_size(self.weights_bytes)}"]
        if self.kv_bytes_per_token is not None:
            parts.append(f"KV cache {_size(self.kv_bytes_per_token)} a token")
        if self.kv_cache_tokens is not None:
            whole = _size((self.kv_bytes_per_token or 0) * self.kv_cache_tokens)
            parts.append(f"room for {self.kv_cache_tokens:,} tokens in {whole}")
        return ", ".join(parts)

    @property
    def _ends(self) -> str:
        pairs = zip(self.eos_token_ids, self.ends, strict=True)
        named = [f"{text} ({number})" for number, text in pairs]
        if self.chat_template.dialogue is Rendering.TEXT:
            named.append(f"a line that begins with `{PLAIN_ROLES['user']}:` or another speaker")
        return ", ".join(named) or "none"

    @property
    def _template(self) -> list[tuple[str, str]]:
        one = self.chat_template
        called = f"calls {_written(one.calls)} in the form {one.tool_format}, {one.calls_per_message} a message"
        rest = {
            Thinking.OPENED: "every answer begins inside <think>",
            Thinking.POSSIBLE: "an answer may begin with <think>",
            Thinking.NONE: "none",
        }
        system = "by the template" if one.system is Rendering.TEMPLATE else "in the first user message"
        if one.dialogue is Rendering.TEXT:
            system = "plainly, as text"
        joined = "; neighbouring messages of one role are joined" if one.neighbours is Rendering.TEXT else ""
        return [
            ("system", system + joined),
            ("tools", f"{_written(one.tools)}; {called}"),
            ("thinking", rest[one.thinking]),
        ]


def _written(rendering: Rendering) -> str:
    return "by the template" if rendering is Rendering.TEMPLATE else "as text"


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _count(number: float) -> str:
    for unit in ("", " k", " M"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} G"


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} GiB"

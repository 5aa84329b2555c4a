"""Settings of the model that a worker serves; others are in the policy file."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings

from models.files.adapter_folders import adapter_folders


class ModelSettings(BaseSettings):
    model: str = Field("demo", min_length=1, description="`demo`, a folder, a GGUF file, or a Hugging Face name")
    adapters: str = Field(
        "", description="LoRA adapters: `name=folder`, or a folder of adapter folders; several with `,`"
    )
    engine: Literal["auto", "torch", "vllm", "paced"] = Field(
        "auto",
        description="`auto`: `vllm` where it is installed and a GPU is there, else `torch`; `paced` emits words at a "
        "fixed rate, for tests",
    )
    device: str = Field(
        "auto", pattern=r"^(auto|(cpu|cuda|mps|xpu)(:\d+)?)$", description="`auto`, `cpu`, `cuda`, `cuda:1`"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="data type of weights and activations; `auto`: on a CPU the faster one, which is measured"
    )
    quantize: Literal["", "int8", "int8-vocabulary", "fp8"] = Field(
        "",
        description="quantize the weights of a plain checkpoint: `int8`, on a CPU `int8-vocabulary` for its largest "
        "matrix alone, on a GPU `fp8`",
    )
    products: Literal["auto", "plain", "packed", "stored"] = Field(
        "auto",
        description="form of the weights on a CPU: `packed` for oneDNN, `stored`, or `plain`; `auto`: the fastest, "
        "which is measured",
    )
    trust_remote_code: bool = Field(False, description="allow Python code in a checkpoint")
    threads: int = Field(
        0,
        ge=0,
        description="CPU threads of the engine; 0: all cores but one, or all while that is measured as clearly faster",
    )
    max_running: int = Field(128, ge=1, description="sequences that the engine decodes at once, per worker")
    context_length: int = Field(0, ge=0, description="tokens of prompt and answer together; 0: the model's own")
    kv_cache_gb: float = Field(
        0,
        ge=0,
        description="KV cache of each model, including its draft model, in GB; 0: on a GPU all free memory, on a CPU "
        "as much as the weights take, at least 0.25 and one whole context, at most 2; it is taken as it is used",
    )
    speculation: Literal["off", "lookup", "auto"] = Field(
        "off", description="speculative decoding: `lookup` drafts from the text, `auto` also from the draft model"
    )
    draft_model: str = Field("", description="draft model of the torch engine, with the tokenizer of `PARLEY_MODEL`")
    tool_format: str = Field("", description="how the model writes calls of tools; empty: as its chat template shows")
    vllm_args: str = Field("", description="additional `AsyncEngineArgs` of vLLM, as a JSON object")
    paced_tokens_per_s: float = Field(50.0, gt=0, description="tokens/s of each answer of the `paced` engine")
    system_prompt: str = Field("", description="system prompt of every conversation; may be empty")
    max_tokens: int = Field(256, ge=1, description="`max_tokens` of requests without one")
    max_prompt_bytes: int = Field(65536, ge=1, description="longer prompts are rejected")

    @field_validator("adapters")
    @classmethod
    def _adapter_names(cls, value: str) -> str:
        adapter_folders(value)
        return value

    @field_validator("tool_format")
    @classmethod
    def _known_form(cls, value: str) -> str:
        if not value:
            return value
        from models.tools.plugged import form_names

        if value not in form_names(value):
            raise ValueError(f"must be empty or one of {', '.join(form_names(value))}")
        return value

    @field_validator("vllm_args")
    @classmethod
    def _json_object(cls, value: str) -> str:
        try:
            valid = isinstance(json.loads(value or "{}"), dict)
        except ValueError:
            valid = False
        if not valid:
            raise ValueError('must be a JSON object, such as {"gpu_memory_utilization": 0.8}')
        return value

    @property
    def models(self) -> list[str]:
        """The values of a request's `model` that the settings define."""
        return [self.model, *adapter_folders(self.adapters)]


def option_mistake(name: str, value: object) -> str | None:
    """Why the setting cannot have this value, whatever the environment has; None if it can."""
    try:
        ModelSettings.__pydantic_validator__.validate_assignment(ModelSettings.model_construct(), name, value)
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        return why.replace("Input should", "must").replace("String should", "must")
    return None

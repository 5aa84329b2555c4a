"""Read from a loaded checkpoint what its report says, and what its owner should be warned of."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jinja2 import TemplateSyntaxError
from safetensors import safe_open
from torch import Tensor

from models.checkpoints.arithmetic import FLOAT32_AT_MOST
from models.checkpoints.loading import Checkpoint
from models.compute.fused import cache_dtype, why_no_kernels
from models.files.architectures import kv_bytes_per_token
from models.files.errors import CheckpointError
from models.interface.chat import ChatMessage, ModelCall
from models.prompts.builder import PromptBuilder, PromptError
from models.prompts.forgery.names_pattern import names_pattern
from models.prompts.template_features import ToolsIn, user
from models.served.model_report import (
    EnginePath,
    ModelReport,
    Rendering,
    TemplateSummary,
    Thinking,
)
from models.text.control_tokens import control_tokens, sources
from models.text.reasoning import tags_of
from models.text.token_texts import highest_id
from models.tools.tool import ModelTool
from models.weights.choice import SMALL
from models.weights.embedding import NarrowEmbedding
from models.weights.layer import ServedLinear
from models.weights.replacing import held_bytes, served

if TYPE_CHECKING:
    from models.engine import TorchEngine


def report_of_loaded(checkpoint: Checkpoint, prompts: PromptBuilder, engine: TorchEngine, dtype: str) -> ModelReport:
    """The report of a checkpoint whose engine has not started yet; `dtype` is the setting.

    Raises `CheckpointError` if its chat template renders nothing.
    """
    model = checkpoint.model
    is_cpu = model.device.type == "cpu"
    return _report(
        checkpoint,
        prompts,
        EnginePath.FUSED if engine.is_fused else EnginePath.TRANSFORMERS,
        dtype,
        model.dtype,
        kv_bytes_per_token=_kv_bytes(_config(checkpoint), cache_dtype(model)),
        products=dataclasses.asdict(checkpoint.products),
        kv_cache_tokens=engine.cache_tokens,
        adapters=engine.adapters,
        threads=engine.threads if is_cpu else None,
        without_kernels=why_no_kernels(model, model.dtype) if is_cpu else None,
    )


def report_under_vllm(checkpoint: Checkpoint, prompts: PromptBuilder, dtype: str) -> ModelReport:
    """The report of a described checkpoint, which vLLM loads; `dtype` is the setting. Raises as `report_of_loaded`."""
    config = _config(checkpoint)
    own = getattr(config, "dtype", None) or torch.bfloat16
    computed = own if dtype == "auto" else getattr(torch, dtype)
    kv_bytes = _kv_bytes(config, computed)
    return _report(checkpoint, prompts, EnginePath.VLLM, dtype, computed, kv_bytes_per_token=kv_bytes, products={})


def _report(
    checkpoint: Checkpoint,
    prompts: PromptBuilder,
    path: EnginePath,
    setting: str,
    dtype: torch.dtype,
    **of_engine: Any,
) -> ModelReport:
    """`setting` is that of its dtype, `dtype` what came of it."""
    must_render(checkpoint, prompts)
    config, written = _config(checkpoint), _written_config(checkpoint)
    parameters, weights_bytes = _weights(checkpoint)
    eos = tuple(sorted(checkpoint.eos))
    names = written.get("architectures") or getattr(config, "architectures", None) or [config.model_type]
    return ModelReport(
        model=checkpoint.name,
        model_version=checkpoint.model_version,
        architecture=str(names[0]),
        engine_path=path,
        device="cuda" if path is EnginePath.VLLM else checkpoint.model.device.type,
        parameters=parameters,
        dtype=str(dtype).removeprefix("torch."),
        dtype_reason=_dtype_reason(checkpoint, path, setting, dtype, written),
        weights_bytes=weights_bytes,
        context_length=checkpoint.context_length,
        vocab_size=int(config.vocab_size),
        eos_token_ids=eos,
        ends=tuple(str(checkpoint.tokenizer.convert_ids_to_tokens(one)) for one in eos),
        chat_template=_template(checkpoint, prompts),
        generation_defaults=dataclasses.asdict(checkpoint.defaults),
        generation_ignored=dict(checkpoint.ignored),
        warnings=tuple(_warnings(checkpoint, prompts)),
        **of_engine,
    )


def must_render(checkpoint: Checkpoint, prompts: PromptBuilder) -> None:
    """Raise `CheckpointError` unless the chat template renders a message of a user."""
    try:
        if _USER in prompts.tried([user(_USER)], (), ToolsIn.TEXT):
            return
        why = "it leaves out what the user says"
    except PromptError as error:
        cause = error.__cause__
        why = f"line {cause.lineno}: {cause.message}" if isinstance(cause, TemplateSyntaxError) else str(error)
    raise CheckpointError(
        f"model {checkpoint.name}: its chat template renders no conversation ({why}); fetch chat_template.jinja or "
        "tokenizer_config.json again"
    )


_USER = "qzu1"
_REASONING = re.compile(r"[<\[◁][^<>\[\]\s]{0,20}(?:think|thought|reason)[^<>\[\]\s]{0,10}[>\]▷]", re.IGNORECASE)
_LAYER = re.compile(r"(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.")
_AFTER_ANSWER = re.compile(r"qza1(.*?)qzu2", re.DOTALL)


def _config(checkpoint: Checkpoint) -> Any:
    return checkpoint.model.config if checkpoint.config is None else checkpoint.config


def _written_config(checkpoint: Checkpoint) -> dict[str, Any]:
    if checkpoint.files is None:
        return {}
    try:
        written = json.loads((checkpoint.files.folder / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}


def _weights(checkpoint: Checkpoint) -> tuple[int | None, int]:
    """How many parameters there are, and their bytes in memory."""
    if checkpoint.model is None:
        return None, 0 if checkpoint.files is None else checkpoint.files.weight_bytes
    return _parameters(checkpoint.model), held_bytes(checkpoint.model)


def _parameters(model: Any) -> int:
    """Each tied weight once, and a packed layer as what it stands for."""
    counts = {id(one.matrix): one.matrix.bias.numel() for one in served(model) if one.matrix.bias is not None}
    for module in model.modules():
        if isinstance(module, NarrowEmbedding):
            counts[id(module)] = module.weight.numel()
        if isinstance(module, ServedLinear) and module.is_copy:
            continue
        weight = getattr(module, "weight", None)
        if hasattr(module, "in_features"):
            key = weight.data_ptr() if isinstance(weight, Tensor) else id(module)
            counts[key] = module.in_features * module.out_features
            bias = getattr(module, "bias", None)
            if isinstance(bias, Tensor):
                counts[bias.data_ptr()] = bias.numel()
        else:
            counts |= {one.data_ptr(): one.numel() for one in module.parameters(recurse=False)}
    return sum(counts.values())


def _kv_bytes(config: Any, dtype: torch.dtype) -> int | None:
    if getattr(config, "kv_lora_rank", None):
        return None
    try:
        return kv_bytes_per_token(config, dtype.itemsize)
    except (AttributeError, RuntimeError, TypeError):  # it depends on the layer
        return None


def _dtype_reason(
    checkpoint: Checkpoint, path: EnginePath, setting: str, dtype: torch.dtype, written: dict[str, Any]
) -> str:
    size = 0 if checkpoint.files is None else checkpoint.files.weight_bytes
    own = written.get("dtype") or written.get("torch_dtype") or "float32"
    reasons = (
        (setting != "auto", "set by PARLEY_DTYPE"),
        (path is EnginePath.VLLM, "the checkpoint's own"),
        (checkpoint.quantization != "", "in which the packed kernels are fast"),
        (checkpoint.products.layers.is_integer, "which products of integers take and return"),
        (path is not EnginePath.VLLM and checkpoint.model.device.type != "cpu", "a GPU's"),
        (size > FLOAT32_AT_MOST, "for more than 4 GiB of weights"),
        (own != "bfloat16", f"a CPU's, for weights in {own}"),
        (size < SMALL, "bfloat16 gains nothing with so few weights"),
    )
    measured = f"bfloat16 is measured as {'' if dtype is torch.bfloat16 else 'not '}clearly faster on this CPU"
    return next((reason for holds, reason in reasons if holds), measured)


def _template(checkpoint: Checkpoint, prompts: PromptBuilder) -> TemplateSummary:
    features = prompts.features
    possible = Thinking.POSSIBLE if tags_of(checkpoint.tokenizer) else Thinking.NONE
    return TemplateSummary(
        dialogue=_by_template(is_rendered=prompts.has_template),
        system=_by_template(is_rendered=features.system and prompts.has_template),
        neighbours=_by_template(is_rendered=features.neighbours),
        tools=_by_template(is_rendered=features.tools is not ToolsIn.TEXT),
        calls=_by_template(is_rendered=features.calls),
        tool_format=prompts.tool_format.name,
        calls_per_message="one" if prompts.has_single_calls else "several",
        thinking=Thinking.OPENED if features.opens_thinking else possible,
    )


def _by_template(*, is_rendered: bool) -> Rendering:
    return Rendering.TEMPLATE if is_rendered else Rendering.TEXT


def _warnings(checkpoint: Checkpoint, prompts: PromptBuilder) -> Iterator[str]:
    tokenizer, rows = checkpoint.tokenizer, int(_config(checkpoint).vocab_size)
    if not tokenizer.chat_template:
        yield "it has no chat template: messages are written as `User: ...`, which only a base model may expect"
    if not checkpoint.eos:
        yield "it names no end of an answer (eos_token_id): answers end at max_tokens"
    elif end := _missing_end(checkpoint, prompts.report.texts):
        number = tokenizer.convert_tokens_to_ids(end)
        yield (
            f"its template ends answers with {end}, which is not among its ends: answers may not stop; add {number} to "
            "eos_token_id in generation_config.json"
        )
    if beyond := sorted(one for one in checkpoint.eos if one >= rows):
        yield f"it cannot write its end {beyond[0]}: it has {rows} rows; correct eos_token_id in generation_config.json"
    highest = highest_id(tokenizer.backend_tokenizer)
    if highest >= rows:
        yield f"its tokenizer has ids up to {highest}, the model only {rows} rows: a prompt beyond them is refused"
    if tags_of(tokenizer) is None and (tag := _REASONING.search("\n".join(sources(tokenizer)))):
        yield f"its template writes {tag[0]}: a reasoning between such tags is not known, and stays in the text"
    if prompts.report.warning:
        yield prompts.report.warning
    if not _renders(prompts, [_ASKED, _ANSWERED, ChatMessage("user", "qzu2")], "qzu1", "qza1"):
        yield "its chat template leaves out the turns before the last one: its answers know nothing of the conversation"
    if prompts.features.calls and not _renders(prompts, [_ASKED, _CALLING, _RESULT], "qzsys1"):
        yield "its chat template leaves out the system prompt behind the result of a tool"
    used = getattr(_config(checkpoint), "num_hidden_layers", None)
    there = _layers_in(checkpoint)
    if used is not None and there > used + (getattr(_config(checkpoint), "num_nextn_predict_layers", None) or 0):
        yield f"its files have {there} layers, and config.json says {used}: the others are not used"
    for key, value in checkpoint.ignored.items():
        yield f"generation_config.json: {key}={value!r} is not applied"


_ASKED, _ANSWERED = ChatMessage("user", "qzu1"), ChatMessage("assistant", "qza1")
_CALLING = ChatMessage("assistant", "", calls=(ModelCall("qztool", "{}", "qzcall001"),))
_RESULT = ChatMessage("tool", "qzresult", call_id="qzcall001")
_TOOL = ModelTool("qztool", "qzabout", {"type": "object", "properties": {}})


def _renders(prompts: PromptBuilder, said: Sequence[ChatMessage], *words: str) -> bool:
    tools = [_TOOL] if _RESULT in said else []
    try:
        text = prompts.rendered("qzsys1", said, tools=tools)
    except PromptError:
        return True  # what a template refuses is reported elsewhere
    return all(word in text for word in words)


def _layers_in(checkpoint: Checkpoint) -> int:
    """How many decoder layers the files have; 0 if they name them otherwise."""
    if checkpoint.files is None:
        return 0
    found = {-1}
    for path in checkpoint.files.folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found |= {int(layer[1]) for name in file.keys() if (layer := _LAYER.match(name))}  # noqa: SIM118
    return max(found) + 1


def _missing_end(checkpoint: Checkpoint, texts: Sequence[str]) -> str:
    """The special token that follows an answer, if it is no end. One that stands alone there may be the next role."""
    special = control_tokens(checkpoint.tokenizer).special
    names = re.compile(names_pattern(special))
    for between in _AFTER_ANSWER.findall("\n".join(texts)):
        after = names.findall(between)
        if len(after) > 1 and between.lstrip().startswith(after[0]):
            return "" if special[after[0]] in checkpoint.eos else after[0]
    return ""

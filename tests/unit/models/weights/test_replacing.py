"""Every family's linear layers are put into the chosen form, and compute what they did."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from models.served.checkpoint_report import _parameters
from models.weights import Kind, Products, replace_layers
from models.weights.embedding import NarrowEmbedding, leave_embedding_in_file
from models.weights.int8 import why_not
from models.weights.matrix import prepack
from models.weights.replacing import held_bytes, is_linear, served
from models.weights.stored import why_not as stored_why_not
from tests.unit.models import tiny
from tests.unit.models.engine.schedules import ARCHITECTURES

CPU = torch.device("cpu")
IDS = torch.tensor([[7, 50, 11, 300, 42, 9, 77, 120]])
FAMILIES = {
    **{name: (name.split(maxsplit=1)[0], changes) for name, changes in ARCHITECTURES.items()},
    "gpt2": ("gpt2", {"n_embd": 64, "n_head": 4, "n_layer": 2}),
    "gpt_neox": ("gpt_neox", {}),
    "olmo2": ("olmo2", {}),
    "qwen3_moe": ("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}),
}
NEAR = {Kind.PACKED: 1e-4, Kind.STORED: 1e-4, Kind.INT8: 0.1}


@pytest.fixture(params=list(NEAR))
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param is Kind.INT8 and (reason := why_not(CPU)):
        pytest.skip(reason)
    if request.param is Kind.STORED and (reason := stored_why_not(torch.float32)):
        pytest.skip(reason)
    if request.param is Kind.PACKED:
        try:
            prepack(torch.ones(8, 8))
        except (RuntimeError, AttributeError) as error:
            pytest.skip(f"this CPU or torch has no prepacked products: {error}")
    return Kind(request.param)


@torch.inference_mode()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(IDS, use_cache=False).logits.float()
    return found


def off(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("family", FAMILIES)
def test_its_logits_stay_near_and_no_layer_is_left(family: str, kind: Kind) -> None:
    name, changes = FAMILIES[family]
    model = tiny.model(name, **changes)
    before, held, routers = logits(model), held_bytes(model), sum(map(is_router, model.modules()))
    replace_layers(model, Products(kind, kind), torch.float32)
    assert off(logits(model), before) < NEAR[kind]
    assert sum(map(is_linear, model.modules())) == 0
    assert sum(map(is_router, model.modules())) == routers
    if kind is Kind.INT8:
        assert held_bytes(model) < held


def is_router(module: nn.Module) -> bool:
    return "Router" in type(module).__name__


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_the_vocabulary_alone(family: str) -> None:
    model = tiny.model(family, **ARCHITECTURES[family])
    before = logits(model)
    replace_layers(model, Products(Kind.PLAIN, Kind.INT8), torch.float32)
    assert [one.out_features for one in served(model)] == [model.config.vocab_size]
    assert 0 < off(logits(model), before) < 0.05


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "gpt2"])
def test_a_narrow_checkpoint_computes_what_its_widened_weights_do(family: str, tied: bool, kind: Kind) -> None:
    name, changes = FAMILIES[family]
    narrow = tiny.model(name, **changes, tie_word_embeddings=tied).to(torch.bfloat16)
    wide = copy.deepcopy(narrow).to(torch.float32)
    replace_layers(narrow, Products(kind, kind), torch.float32)
    replace_layers(wide, Products(kind, kind), torch.float32)
    assert narrow.dtype is torch.float32
    assert torch.equal(logits(narrow), logits(wide))
    assert held_bytes(narrow) < held_bytes(wide)
    assert any(isinstance(module, NarrowEmbedding) for module in narrow.modules())


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_stored_weights_are_in_memory_once(family: str, tmp_path: Path) -> None:
    if reason := stored_why_not(torch.float32):
        pytest.skip(reason)
    model = tiny.model(family, **ARCHITECTURES[family], tie_word_embeddings=True).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    held, parameters = held_bytes(model), sum(one.numel() for one in model.parameters())
    replace_layers(model, Products(Kind.STORED, Kind.STORED), torch.float32)
    assert not leave_embedding_in_file(model, tmp_path), "the vocabulary's matrix is the embedding"
    assert held_bytes(model) - held == 2 * sum(one.numel() for one in model.parameters()), "norms alone are widened"
    assert _parameters(model) == parameters


def test_a_tied_vocabulary_that_stays_plain_is_widened_with_the_embedding(kind: Kind) -> None:
    model = tiny.model("gemma3_text", **ARCHITECTURES["gemma3_text"]).to(torch.bfloat16)
    wide = copy.deepcopy(model).to(torch.float32)
    replace_layers(model, Products(kind, Kind.PLAIN), torch.float32)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert off(logits(model), logits(wide)) < NEAR[kind]


def test_layers_of_one_input_are_one_product(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    model = tiny.model("gemma3_text", **ARCHITECTURES["gemma3_text"])
    replace_layers(model, Products(kind, kind), torch.float32)
    attention = model.model.layers[0].self_attn
    shared = attention.q_proj.shared
    assert attention.k_proj.shared is shared
    assert attention.v_proj.shared is shared
    calls: list[int] = []
    shared.whole.register_forward_hook(lambda *_: calls.append(1))
    logits(model)
    assert len(calls) == 1


def test_layers_that_share_a_product_may_be_given_different_tensors(kind: Kind) -> None:
    model = tiny.model("llama")
    own = copy.deepcopy(model.model.layers[0].self_attn)
    replace_layers(model, Products(kind, kind), torch.float32)
    attention = model.model.layers[0].self_attn
    first, second = torch.randn(2, 3, 64)
    for given in (first, second, first):
        for name in ("v_proj", "q_proj", "k_proj"):
            torch.testing.assert_close(
                getattr(attention, name)(given), getattr(own, name)(given), rtol=0, atol=40 * NEAR[kind]
            )
            given = given + 1  # noqa: PLW2901  another tensor for the next one


@pytest.mark.parametrize("family", ["gemma3_text", "olmo2"])
def test_no_weight_is_left_in_a_mapped_file(family: str, kind: Kind, tmp_path: Path) -> None:
    name, changes = FAMILIES[family]
    tiny.model(name, **changes).to(torch.bfloat16).save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    replace_layers(model, Products(kind, kind), torch.float32)
    (file,) = tmp_path.glob("*.safetensors")
    assert str(file) not in Path("/proc/self/maps").read_text(encoding="utf-8")

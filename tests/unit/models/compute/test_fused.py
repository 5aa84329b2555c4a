"""The leaner forward computes what the model's own code computes, and only where it is known to."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn

from models.compute import kernel_forward
from models.compute.attention import Context
from models.compute.batch import pack
from models.compute.cache import KVCache
from models.compute.fused import lean
from models.compute.model_attention import use_paged_attention
from models.compute.pages import PagePool
from models.engine.sequence import ScheduledChunk, SequenceState
from models.interface.generation import Job
from models.interface.token_stream import TokenStream
from models.weights import Kind, Products, replace_layers, replacing
from models.weights.int8 import onednn_why_not, why_not
from tests.unit.models import tiny
from tests.unit.models.engine.schedules import ARCHITECTURES

FAMILY = ("llama", "qwen2", "qwen2 sliding", "qwen3", "mistral", "mistral sliding")
GEMMAS = ("gemma2", "gemma3_text")


def make(architecture, **changes):
    return tiny.model(architecture.split(maxsplit=1)[0], **(ARCHITECTURES[architecture] | changes))


def both_ways(model, dtype=torch.float32, cuts=(30, 54, 55), **changes):
    """Logits of a prompt in pieces that end there, as two chunks and a single token, by the lean forward and by the
    model's own.
    """
    model = model.to(dtype)
    use_paged_attention(model)
    leaner = lean(model, **changes)
    assert leaner is not None
    found = []
    for forward in (leaner, lambda context: own(model, context)):
        pool, cache = PagePool(40, 16), KVCache(model.config, 40, model.device, dtype)
        sequence = SequenceState(Job("r", tuple(range(5, 5 + cuts[-1])), 9), TokenStream(lambda *_: None), 0, 0.0, 199)
        sequence.pages = pool.allocate(10)
        slices = [[ScheduledChunk(sequence, start, end - start)] for start, end in itertools.pairwise((0, *cuts))]
        with torch.inference_mode():
            batches = [pack(part, pool, model.device, all_paged=leaner.by_kernels) for part in slices]
            found.append(torch.cat([forward(Context(batch, cache)).clone() for batch in batches]))
    return found


def own(model, context):
    batch = context.batch
    return model(
        input_ids=batch.tokens.unsqueeze(0),
        position_ids=batch.positions.unsqueeze(0),
        use_cache=False,
        logits_to_keep=batch.last,
        context=context,
    ).logits[0]


WAYS = {
    "kernels": {"by_kernels": True},
    "no kernels": {"by_kernels": False},
    "angles of each step": {"fixed_angles": False},
    "eager, as on a GPU": {"script": False, "by_kernels": False},
}


@pytest.mark.parametrize("changes", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("architecture", [*FAMILY, *GEMMAS])
def test_its_logits_are_the_models_own(architecture, changes):
    leaner, theirs = both_ways(make(architecture), **changes)
    torch.testing.assert_close(leaner, theirs, rtol=1e-4, atol=1e-4)


ROPES = {
    "dynamic": {"factor": 4.0},
    "longrope": {"factor": 4.0, "short_factor": [1.5] * 8, "long_factor": [3.0] * 8},
}


def with_rope(architecture, kind):
    """A model whose angles change beyond 128 tokens."""
    shared = {"rope_type": kind, "rope_theta": 1e4, "original_max_position_embeddings": 128}
    return make(architecture, rope_parameters=shared | ROPES[kind])


@pytest.mark.parametrize("kind", ROPES)
def test_angles_that_depend_on_the_length_are_known_up_to_where_they_change(kind):
    leaner, theirs = both_ways(with_rope("llama", kind))
    torch.testing.assert_close(leaner, theirs, rtol=1e-4, atol=1e-4)
    assert lean(with_rope("llama", kind)).angles_are_fixed


def test_it_is_one_script_on_a_cpu():
    assert isinstance(lean(make("llama")).forward, torch.jit.ScriptModule)


def test_where_no_script_can_be_made_it_stays_eager(monkeypatch, caplog):
    def refuse(_function):
        raise RuntimeError("TorchScript is gone")

    monkeypatch.setattr(torch.jit, "script", refuse)
    with caplog.at_level("INFO"):
        leaner, theirs = both_ways(make("llama"))
    torch.testing.assert_close(leaner, theirs, rtol=1e-4, atol=1e-4)
    assert "TorchScript is gone" in caplog.text


def test_biases_are_joined_as_well_and_half_precision_stays_close():
    leaner, theirs = both_ways(make("llama", attention_bias=True, mlp_bias=True))
    torch.testing.assert_close(leaner, theirs, rtol=1e-4, atol=1e-4)
    leaner, theirs = both_ways(make("llama"), torch.bfloat16)
    assert (leaner - theirs).norm() < 0.05 * theirs.norm()


@pytest.mark.parametrize("form", [Kind.INT8, Kind.INT8_ONEDNN])
@pytest.mark.parametrize("by_kernels", [True, False])
@pytest.mark.parametrize("architecture", ["qwen2", "gemma3_text"])
def test_blocks_of_outputs_have_the_bits_of_the_whole(architecture, by_kernels, form, monkeypatch):
    """Also where their sums are joined in memory that is kept."""
    if reason := why_not(torch.device("cpu")) or (onednn_why_not() if form is Kind.INT8_ONEDNN else None):
        pytest.skip(reason)
    found = []
    for block, large in ((1 << 14, 1 << 22), (24, 0)):
        monkeypatch.setattr(replacing, "VOCABULARY_BLOCK", block)
        monkeypatch.setattr(kernel_forward, "LARGE", large)
        torch.manual_seed(1)
        model = make(architecture)
        replace_layers(model, Products(form, form), torch.float32)
        found.append(both_ways(model, by_kernels=by_kernels)[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("form", [Kind.PACKED, Kind.INT8])
def test_other_forms_of_the_weights_compute_what_the_models_own_layers_do(form):
    if form is Kind.INT8 and (reason := why_not(torch.device("cpu"))):
        pytest.skip(reason)
    for changes in WAYS.values():
        model = make("llama", attention_bias=True, mlp_bias=True)
        try:
            replace_layers(model, Products(form, form), torch.float32)
        except (RuntimeError, AttributeError) as error:
            pytest.skip(f"this CPU or torch has no such products: {error}")
        leaner, theirs = both_ways(model, **changes)
        assert (leaner - theirs).norm() < (0.02 if form is Kind.INT8 else 1e-4) * theirs.norm()


@pytest.mark.parametrize("tokens", [32, 33, 65, 130])
def test_a_long_prompt_has_the_logits_of_the_model_whatever_rows_its_products_have(tokens):
    leaner, theirs = both_ways(make("llama"), cuts=(tokens,))
    torch.testing.assert_close(leaner, theirs, rtol=1e-4, atol=1e-4)


def test_the_models_weights_are_views_of_the_joined_ones_and_stay_what_they_were():
    model = make("qwen2")
    before = copy.deepcopy(model.state_dict())
    lean(model)
    attention = model.model.layers[0].self_attn
    storage = {layer.weight.untyped_storage().data_ptr() for layer in (attention.q_proj, attention.v_proj)}
    assert len(storage) == 1
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), name


@pytest.mark.parametrize("architecture", ["phi3", "phi3 sliding"])
def test_other_architectures_are_left_alone(architecture):
    assert lean(make(architecture)) is None


def test_a_model_with_layers_of_another_kind_is_left_alone():
    class Packed(nn.Linear):
        pass

    model = make("llama")
    model.model.layers[1].mlp.up_proj.__class__ = Packed
    assert lean(model) is None
    assert lean(make("llama", hidden_act="gelu")) is None

"""What packed weights gain: one decode step and one prompt, speed and memory, side by side in one run.

`python -m tests.benchmarks.gptq` makes a Llama of random weights and quantizes it by rounding to nearest, which
computes as fast as GPTQ's better numbers. Ratios are against bfloat16 (below 1 is faster), measured in turns, medians
of the process' own time.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

THREADS = max(1, len(os.sched_getaffinity(0)) - 1)
os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))


import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from models.weights.gptq import Layer  # noqa: E402
from models.weights.gptq_layer import PackedLinear, plain_linear  # noqa: E402
from models.weights.narrow import WeightOnly, quantize_weights  # noqa: E402

SIZES = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4}
ROWS = (1, 4, 8, 32, 64, 128, 256)


def model(layers: int) -> Any:
    config = AutoConfig.for_model("llama", vocab_size=8192, num_hidden_layers=layers, bos_token_id=None, **SIZES)
    return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().requires_grad_(requires_grad=False)


def rounded(weight: torch.Tensor, bits: int, act_order: bool, size: int = 128) -> Layer:
    order = torch.randperm(weight.shape[1]) if act_order else None
    grouped = (weight if order is None else weight[:, order]).float().view(len(weight), -1, size)
    scales = grouped.abs().amax(-1) * 2 / (2**bits - 1)
    middle = 2 ** (bits - 1)
    quants = (grouped / scales[..., None]).round().add(middle).clamp(0, 2**bits - 1).to(torch.uint8).flatten(1)
    return Layer(quants, scales.T, torch.full_like(scales.T, middle, dtype=torch.uint8), size, bits, order)


def replaced(plain: Any, make: Callable[[torch.nn.Linear], torch.nn.Module]) -> Any:
    made = copy.deepcopy(plain)
    for path, module in list(made.named_modules()):
        if isinstance(module, torch.nn.Linear) and ".layers." in path:
            parent, _, own = path.rpartition(".")
            setattr(made.get_submodule(parent), own, make(module))
    return made


def packed(bits: int, act_order: bool = False) -> Callable[[torch.nn.Linear], torch.nn.Module]:
    return lambda linear: PackedLinear(rounded(linear.weight, bits, act_order), None, torch.device("cpu"))


def unpacked(bits: int, act_order: bool) -> Callable[[torch.nn.Linear], torch.nn.Module]:
    return lambda linear: plain_linear(rounded(linear.weight, bits, act_order).dequantized(), None)


class DequantizedEachTime(torch.nn.Module):
    """What a reader without a kernel would do."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.layer = rounded(linear.weight, 4, act_order=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(given, self.layer.dequantized().to(given.dtype))


def int8(plain: Any) -> Any:
    made = copy.deepcopy(plain)
    quantize_weights(made, WeightOnly.INT8)
    return made


def weights(made: Any) -> int:
    held = {tensor.data_ptr(): tensor.nbytes for tensor in (*made.parameters(), *made.buffers())}
    held |= {
        module.layer.quants.data_ptr(): module.layer.quants.nbytes
        for module in made.modules()
        if hasattr(module, "layer")
    }
    return sum(held.values())


@torch.inference_mode()
def step(made: Any, rows: int) -> float:
    """Processor seconds of a forward over `rows` tokens, as packed rows of a decode step or a prompt."""
    ids = torch.randint(0, 8192, (1, rows))
    begun = time.process_time()
    made.model(ids, use_cache=False)
    return time.process_time() - begun


def differ(one: torch.Tensor, other: torch.Tensor) -> str:
    error = float((one - other).norm() / other.norm())
    largest = float((one - other).abs().max())
    same = float((one.argmax(-1) == other.argmax(-1)).float().mean())
    return f"{error:.4f}, largest {largest:.3f}, argmax {same:.1%}"


@torch.inference_mode()
def accuracy(plain: Any) -> None:
    ids = torch.randint(0, 8192, (1, 64))
    print("\nlogits against float32 with the dequantized weights (relative error):")
    for bits, act_order in ((4, False), (4, True), (8, False), (8, True)):
        chance = torch.get_rng_state()
        ours = replaced(plain, packed(bits, act_order))(ids, use_cache=False).logits[0].float()
        torch.set_rng_state(chance)
        dequantized = replaced(plain, unpacked(bits, act_order))
        half = copy.deepcopy(dequantized).to(torch.bfloat16)(ids, use_cache=False).logits[0].float()
        exact = dequantized.float()(ids, use_cache=False).logits[0]
        name = f"{bits} bits{', act-order' if act_order else ''}"
        print(f"  {name:<20}packed: {differ(ours, exact)}   bfloat16: {differ(half, exact)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=6, help="13M parameters each (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    asked = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    plain = model(asked.layers)
    kinds = {
        "bfloat16": plain,
        "int4": replaced(plain, packed(4)),
        "int4 act-order": replaced(plain, packed(4, act_order=True)),
        "int8 of GPTQ": replaced(plain, packed(8)),
        "int8 weight-only": int8(plain),
        "int4, unpacked each time": replaced(plain, DequantizedEachTime),
    }
    count = sum(weight.numel() for weight in plain.parameters())
    print(f"{count / 1e6:.0f}M parameters, {THREADS} thread(s), {torch.backends.cpu.get_cpu_capability()}")
    print(f"{'tokens at once':<26}{'weights':>10}" + "".join(f"{rows:>10}" for rows in asked.rows))
    found: dict[str, list[list[float]]] = {name: [[] for _ in asked.rows] for name in kinds}
    for at, rows in enumerate(asked.rows):
        for _ in range(asked.rounds + 1):
            for name, made in kinds.items():
                if name != "int4, unpacked each time" or rows == 1:
                    found[name][at].append(step(made, rows))
    base = [statistics.median(spent[1:]) for spent in found["bfloat16"]]
    print(f"{'bfloat16':<26}{weights(plain) / 1e6:>7.0f} MB" + "".join(f"{least * 1e3:>7.1f} ms" for least in base))
    for name, made in list(kinds.items())[1:]:
        ratios = (
            f"{statistics.median(s[1:]) / b:>9.2f}x" if s else f"{'':>10}"
            for s, b in zip(found[name], base, strict=True)
        )
        print(f"{name:<26}{weights(made) / 1e6:>7.0f} MB" + "".join(ratios))
    accuracy(plain)


if __name__ == "__main__":
    main()

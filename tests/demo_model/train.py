"""Trains the demo model: `python -m tests.demo_model.train`, minutes on two cores, the same for the same seed.

What makes so small a model copy names and numbers that it has never seen: heads that begin by looking back
(`network.py`), random tokens to be repeated among short dialogues before the long ones, and a greater weight on what
an answer copies than on the words around it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from models.demo import CHECKPOINT
from tests.demo_model import tokenizer
from tests.demo_model.batches import Batch, Batches, Lesson
from tests.demo_model.dialogues import held_out
from tests.demo_model.encoding import Encoder
from tests.demo_model.network import untrained
from tests.demo_model.scoring import score

LESSONS = (
    Lesson(0.15, 112, 0.3),
    Lesson(0.35, 112, 0.1),
    Lesson(0.65, 320, 0.06),
    Lesson(1.0, tokenizer.CONTEXT, 0.05),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and how fast."""

    steps: int = 3000
    tokens: int = 2560
    sample: int = 6000
    examined: int = 100
    warmup: int = 60
    decay_from: float = 0.4
    matrices_rate: float = 3e-3
    vectors_rate: float = 3e-3

    def lesson(self, step: int) -> Lesson:
        return next(lesson for lesson in LESSONS if step < lesson.until * self.steps)

    def rate(self, step: int) -> float:
        """The learning rates' factor: up at first, level, then down to nothing."""
        left = (1 - step / self.steps) / (1 - self.decay_from)
        return min(1.0, (step + 1) / self.warmup, left)


def train(plan: Plan, seed: int) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    torch.manual_seed(seed)
    words = tokenizer.trained(seed, sample=plan.sample)
    encoder = Encoder(words.backend_tokenizer)
    model = untrained(words)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} million parameters, {plan.steps} steps", flush=True)
    batches = Batches(encoder, seed, plan.tokens)
    optimizers = _optimizers(model, plan)
    examined = held_out(seed, plan.examined)
    started, seen = time.monotonic(), 0
    stream = iter(batches)
    for step in range(plan.steps):
        batches.lesson = plan.lesson(step)
        batch = next(stream)
        loss = _step(model, optimizers, batch, plan.rate(step))
        seen += batch.ids.numel()
        if (step + 1) % 50 == 0 or step + 1 == plan.steps:
            took = time.monotonic() - started
            left = took / (step + 1) * (plan.steps - step - 1)
            print(f"step {step + 1}: loss {loss:.4f}, {seen / took:.0f} tokens/s, {left:.0f} s left", flush=True)
        if (step + 1) % 250 == 0 or step + 1 == plan.steps:
            print(f"  held out: {score(model, encoder, examined)}", flush=True)
    return model, words


def save(model: LlamaForCausalLM, words: PreTrainedTokenizerFast, folder: Path) -> None:
    """Greedy by default: the shop's answers are right or wrong, not more or less likely."""
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id, max_new_tokens=256
    )
    model.half().save_pretrained(folder)
    words.save_pretrained(folder)


def _optimizers(model: LlamaForCausalLM, plan: Plan) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the embedding and the norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    vectors = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    chosen: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=plan.matrices_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(vectors, lr=plan.vectors_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
    ]
    for optimizer in chosen:
        for group in optimizer.param_groups:
            group["full_rate"] = group["lr"]
    return chosen


def _step(model: LlamaForCausalLM, optimizers: list[torch.optim.Optimizer], batch: Batch, rate: float) -> float:
    loss = _loss(model, batch)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["full_rate"] * rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.item()


def _loss(model: LlamaForCausalLM, batch: Batch) -> Tensor:
    """Weighted cross entropy; logits are made only where there is something to learn."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.model(input_ids=batch.ids, position_ids=batch.positions, use_cache=False).last_hidden_state
        weights = batch.weights[:, 1:]
        learnt = weights > 0
        logits = model.lm_head(hidden[:, :-1][learnt])
    losses = functional.cross_entropy(logits.float(), batch.ids[:, 1:][learnt], reduction="none")
    return (losses * weights[learnt]).sum() / weights[learnt].sum()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.demo_model.train", description="Train the demo model.")
    parser.add_argument("--steps", type=int, default=Plan().steps, help="training steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of dialogues and weights (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=CHECKPOINT, help="folder of the checkpoint (default: %(default)s)")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    started = time.monotonic()
    model, words = train(Plan(steps=asked.steps), asked.seed)
    save(model, words, asked.out)
    print(f"{asked.out}: saved after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

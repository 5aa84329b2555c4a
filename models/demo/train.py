"""Trains the demo model: `python -m models.demo.train`, minutes on two cores, the same for the same seed.

Two things make so small a model copy names and numbers that it has never seen: it repeats random tokens before it
learns to talk, and what an answer copies weighs more than the words around it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from models.demo import CHECKPOINT, attention, tokenizer
from models.demo.batches import Batch, Batches
from models.demo.dialogues import held_out
from models.demo.encoding import Encoder
from models.demo.scoring import score


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and how fast; `repetitions` is the share of random sequences in the first and in the later part."""

    steps: int = 3000
    tokens: int = 3072
    warmup: int = 60
    decay_from: float = 0.4
    sample: int = 6000
    matrices_rate: float = 1e-2
    vectors_rate: float = 6e-3
    repetitions: tuple[float, float] = (0.5, 0.04)
    repetitions_end: float = 0.2

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
    examined = held_out(seed, 100)
    started, seen = time.monotonic(), 0
    batches.repetitions = plan.repetitions[0]
    for step, batch in zip(range(plan.steps), batches, strict=False):
        if step >= plan.steps * plan.repetitions_end:
            batches.repetitions = plan.repetitions[1]
        loss = _step(model, optimizers, batch, plan.rate(step))
        seen += batch.ids.numel()
        if (step + 1) % 50 == 0 or step + 1 == plan.steps:
            took = time.monotonic() - started
            left = took / (step + 1) * (plan.steps - step - 1)
            print(f"step {step + 1}: loss {loss:.4f}, {seen / took:.0f} tokens/s, {left:.0f} s left", flush=True)
        if (step + 1) % 250 == 0 or step + 1 == plan.steps:
            print(f"  held out: {score(model, encoder, examined)}", flush=True)
    return model, words


def untrained(words: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    attention.register()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=tokenizer.CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=words.pad_token_id,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
        attn_implementation=attention.NAME,
    )
    return LlamaForCausalLM(config)


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
    parser = argparse.ArgumentParser(prog="python -m models.demo.train", description="Train the demo model.")
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

"""The cost of quantization: perplexity, token agreement and ROUGE-L, before and after.

Both models are loaded as a worker would load them, and run on the same held-out prompts.

- Perplexity is computed over the right answers if the examples have them, else over whole prompts.
- Token agreement: the original model writes its greedy answers; the quantized model reads them and predicts each token.
- ROUGE-L is the F-measure of the longest common subsequence of words (Lin 2004): between the answers of both models,
  and between each and the right answers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from rapidfuzz.distance import LCSseq

from models.checkpoints.loading import Checkpoint
from models.weights.replacing import held_bytes
from parley_quantize.dialogues import Example

Progress = Callable[[str, int, int], None]
MOST_WORDS = 4096
"""Of each text. The time grows with the product of both: this is some milliseconds."""
_MOST_CHARACTERS = 16 * MOST_WORDS
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two models. `rouge_l` is measured against the right answers, None if none are known; `bytes` of
    weights.
    """

    model_version: str
    dtype: str
    bytes: int
    perplexity: float
    rouge_l: float | None


@dataclass(frozen=True, slots=True)
class Report:
    before: Side
    after: Side
    prompts: int
    token_agreement: float
    rouge_l: float  # between the answers of both models
    same_answers: float

    def table(self) -> str:
        """Markdown."""
        rows = [
            ("model", self.before.model_version, self.after.model_version),
            ("runs in", self.before.dtype, self.after.dtype),
            ("weights in memory", f"{self.before.bytes / 1e6:.2f} MB", f"{self.after.bytes / 1e6:.2f} MB"),
            ("perplexity", f"{self.before.perplexity:.3f}", f"{self.after.perplexity:.3f}"),
            ("ROUGE-L with the right answers", _rate(self.before.rouge_l), _rate(self.after.rouge_l)),
            ("token agreement with before", "", f"{self.token_agreement:.2%}"),
            ("ROUGE-L with before", "", _rate(self.rouge_l)),
            ("answers that are the same", "", f"{self.same_answers:.1%}"),
        ]
        lines = [f"| {self.prompts} held-out prompts | before | after |", "|---|---|---|"]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


@torch.inference_mode()
def compare(
    before: Checkpoint, after: Checkpoint, examples: Sequence[Example], new_tokens: int, progress: Progress
) -> Report:
    """Evaluate both, with greedy answers of at most `new_tokens`."""
    sides = []
    answers: list[list[list[int]]] = []
    for name, checkpoint in (("before", before), ("after", after)):
        losses: list[tuple[float, int]] = []
        written = []
        for at, example in enumerate(examples, start=1):
            prompt = _prompt(checkpoint, example)
            losses.append(_loss(checkpoint, example, prompt))
            written.append(_greedy(checkpoint, prompt, new_tokens))
            progress(name, at, len(examples))
        answers.append(written)
        sides.append(_side(checkpoint, losses, written, examples))
    agreed, counted = 0, 0
    for example, answer in zip(examples, answers[0], strict=True):
        agreed += _agreed(after, _prompt(after, example), answer)
        counted += len(answer)
    pairs = list(zip(*answers, strict=True))
    return Report(
        before=sides[0],
        after=sides[1],
        prompts=len(examples),
        token_agreement=agreed / max(1, counted),
        rouge_l=fmean(rouge_l(_text(before, one), _text(after, other)) for one, other in pairs),
        same_answers=fmean(one == other for one, other in pairs),
    )


def _side(
    checkpoint: Checkpoint, losses: list[tuple[float, int]], written: list[list[int]], examples: Sequence[Example]
) -> Side:
    known = [
        rouge_l(example.answer, _text(checkpoint, answer))
        for example, answer in zip(examples, written, strict=True)
        if example.answer is not None
    ]
    loss = sum(part for part, _ in losses) / max(1, sum(count for _, count in losses))
    return Side(
        checkpoint.model_version,
        str(checkpoint.model.dtype).removeprefix("torch."),
        held_bytes(checkpoint.model),
        math.exp(loss),
        fmean(known) if known else None,
    )


def _prompt(checkpoint: Checkpoint, example: Example) -> list[int]:
    return _ids(checkpoint, example.messages, asked=True)


def _ids(checkpoint: Checkpoint, messages: Any, *, asked: bool) -> list[int]:
    given = checkpoint.tokenizer.apply_chat_template(messages, add_generation_prompt=asked, return_dict=False)
    found: list[int] = given[-checkpoint.context_length // 2 :]
    return found


def _loss(checkpoint: Checkpoint, example: Example, prompt: list[int]) -> tuple[float, int]:
    """Sum of the losses in nats, and the number of tokens."""
    ids = prompt if example.answer is None else _ids(checkpoint, example.whole(), asked=False)
    first = len(prompt) if example.answer is not None and len(prompt) < len(ids) else 1
    given = torch.tensor([ids], device=checkpoint.model.device)
    logits = checkpoint.model(given, use_cache=False).logits[0, first - 1 : -1].float()
    loss = torch.nn.functional.cross_entropy(logits, given[0, first:], reduction="sum")
    return float(loss), len(ids) - first


def _greedy(checkpoint: Checkpoint, prompt: list[int], new_tokens: int) -> list[int]:
    given = torch.tensor([prompt], device=checkpoint.model.device)
    room = min(new_tokens, checkpoint.context_length - len(prompt))
    written = checkpoint.model.generate(
        given,
        attention_mask=torch.ones_like(given),
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        max_new_tokens=room,
        eos_token_id=sorted(checkpoint.eos) or None,
        pad_token_id=0,
    )
    found: list[int] = written[0, len(prompt) :].tolist()
    return found


def _agreed(checkpoint: Checkpoint, prompt: list[int], answer: list[int]) -> int:
    if not answer:
        return 0
    given = torch.tensor([[*prompt, *answer]], device=checkpoint.model.device)
    logits = checkpoint.model(given, use_cache=False).logits[0, len(prompt) - 1 : -1]
    return int((logits.argmax(-1) == given[0, len(prompt) :]).sum())


def _text(checkpoint: Checkpoint, tokens: list[int]) -> str:
    text: str = checkpoint.tokenizer.decode(tokens, skip_special_tokens=True)
    return text


def rouge_l(one: str, other: str) -> float:
    """The F1, from 0 to 1, of the first `MOST_WORDS` words of each."""
    ours, theirs = _words(one), _words(other)
    if not ours and not theirs:
        return 1.0
    return 2 * LCSseq.similarity(ours, theirs) / (len(ours) + len(theirs))


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:_MOST_CHARACTERS].casefold())[:MOST_WORDS]


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"

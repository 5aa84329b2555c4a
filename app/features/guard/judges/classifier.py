"""The labels of a text classifier of Hugging Face: a folder with `config.json`, weights and a tokenizer.

A model with the problem type `multi_label_classification` scores each label by itself; of others, the scores of all
labels add up to 1. A text that is longer than the model's context is judged in pieces, and its worst piece counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from parley_client.plugins import Judge, NoVerdict, turn

_BATCH = 2
_MOST_TOKENS = 512
_OVERLAP = 32

T = TypeVar("T")


class ClassifierJudge(Judge):
    """Its setting is the `folder`. Raises `NoVerdict` if that is no classifier."""

    threshold = 0.5
    width = 1
    blocks = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        import torch  # as transformers, only for policies with a classifier
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        folder = settings["folder"]
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            self._model = AutoModelForSequenceClassification.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32, use_safetensors=True
            ).eval()
        except (OSError, ValueError) as error:
            raise NoVerdict(f"classifier {folder}: {str(error).splitlines()[0]}") from None
        config = self._model.config
        self.categories = tuple(str(config.id2label[number]) for number in range(config.num_labels))
        is_independent = config.problem_type == "multi_label_classification" or config.num_labels == 1
        self._activation = torch.sigmoid if is_independent else lambda logits: torch.softmax(logits, dim=-1)
        positions = int(getattr(config, "max_position_embeddings", 0) or _MOST_TOKENS)
        self._most = min(_MOST_TOKENS, positions, self._tokenizer.model_max_length)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="classifier")

    async def scores(self, texts: Sequence[str]) -> list[Mapping[str, float]]:
        worst: list[dict[str, float]] = [dict.fromkeys(self.categories, 0.0) for _ in texts]
        for at, text in enumerate(texts):
            async with turn():
                pieces, count = await self._in_thread(partial(self._pieces, text))
            for start in range(0, count, _BATCH):
                batch = {name: inputs[start : start + _BATCH] for name, inputs in pieces.items()}
                async with turn():
                    scores = await self._in_thread(partial(self._scores, batch))
                for of_piece in scores:
                    for label, score in zip(self.categories, of_piece, strict=True):
                        worst[at][label] = max(worst[at][label], score)
        return list(worst)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _pieces(self, text: str) -> tuple[dict[str, Any], int]:
        pieces = self._tokenizer(
            [text],
            truncation=True,
            max_length=self._most,
            stride=min(_OVERLAP, self._most // 4),
            return_overflowing_tokens=True,
            padding=True,
            return_tensors="pt",
        )
        count = len(pieces.pop("overflow_to_sample_mapping"))
        return dict(pieces), count

    def _scores(self, batch: Mapping[str, Any]) -> list[list[float]]:
        import torch

        with torch.inference_mode():
            scores: list[list[float]] = self._activation(self._model(**batch).logits).tolist()
        return scores

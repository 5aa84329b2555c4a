"""transformers' own two ways to generate, driven the same way as the engine: many prompts in, all tokens out."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

Prompts = Sequence[Sequence[int]]


def beside(model: Any) -> Any:
    """Another model over the same weights: what is done to the layers of one, the other does not see."""
    return copy.deepcopy(model, {id(shared): shared for shared in (*model.parameters(), *model.buffers())})


class StaticGenerate:
    """One padded batch through `generate`: nothing is streamed, and no prompt joins or leaves."""

    name = "generate"

    def __init__(self, model: Any, new_tokens: int) -> None:
        self.model = beside(model)
        self.model.set_attn_implementation("sdpa")
        self._new_tokens = new_tokens

    async def run(self, prompts: Prompts) -> float:
        ids = torch.tensor([list(prompt) for prompt in prompts], device=self.model.device)
        options = {"max_new_tokens": self._new_tokens, "min_new_tokens": self._new_tokens, "do_sample": False}
        begun = time.perf_counter()
        self.model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, eos_token_id=None, **options)
        return time.perf_counter() - begun

    async def stop(self) -> None:
        pass


class ContinuousBatching:
    """A manager that stays up, as a server would have it; tokens are taken whole, which is its fastest way."""

    name = "continuous batching"

    def __init__(self, model: Any, new_tokens: int) -> None:
        own = beside(model)
        own.set_attn_implementation("paged|sdpa")
        generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=new_tokens)
        sizes = ContinuousBatchingConfig(block_size=16, num_blocks=4096, max_batch_tokens=512)
        self._manager = own.init_continuous_batching(generation, sizes)
        self._manager.start()
        self._asked = 0

    async def run(self, prompts: Prompts) -> float:
        begun = time.perf_counter()
        answers = []
        for prompt in prompts:
            self._asked += 1
            answers.append(done := asyncio.get_running_loop().create_future())
            self._manager.register_result_handler(str(self._asked), done.set_result)
            self._manager.add_request(list(prompt), request_id=str(self._asked))
        await asyncio.wait_for(asyncio.gather(*answers), 300)
        return time.perf_counter() - begun

    async def stop(self) -> None:
        await asyncio.to_thread(self._manager.stop)

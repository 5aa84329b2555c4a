from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.outputs import CompletionOutput, Logprob, RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.exceptions import EngineDeadError

PAUSE_S = 0.001


def config_of(args: AsyncEngineArgs) -> SimpleNamespace:
    """What Parley reads of a `VllmConfig`."""
    return SimpleNamespace(
        model_config=SimpleNamespace(dtype="torch.float32"),
        device_config=SimpleNamespace(device_type="cpu"),
        parallel_config=SimpleNamespace(tensor_parallel_size=args.tensor_parallel_size),
    )


class AsyncLLM:
    """Says the tokens of `words` one by one, whatever is asked: token `i` of an answer is `words[i]`."""

    def __init__(self, args: AsyncEngineArgs) -> None:
        self.args = args
        self.vllm_config = config_of(args)
        self.words: list[int] = []
        self.asked: list[tuple[Any, SamplingParams, int]] = []
        self.loras: list[Any] = []
        self.aborted: list[str] = []
        self.dies_at: int | None = None
        self.down = False
        self.stat_loggers: list[Any] = []

    @classmethod
    def from_engine_args(
        cls,
        engine_args: AsyncEngineArgs,
        start_engine_loop: bool = True,
        usage_context: Any = None,
        stat_loggers: Any = None,
    ) -> AsyncLLM:
        if engine_args.tensor_parallel_size > 8:
            raise ValueError("World size 16 is larger than the number of GPUs\nmore lines")
        made = cls(engine_args)
        made.stat_loggers = [factory(made.vllm_config, 0) for factory in stat_loggers or ()]
        return made

    async def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        prompt_text: str | None = None,
        lora_request: Any = None,
        tokenization_kwargs: dict[str, Any] | None = None,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        data_parallel_rank: int | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        assert sampling_params.output_kind is RequestOutputKind.DELTA
        self.asked.append((prompt, sampling_params, priority))
        self.loras.append(lora_request)
        try:
            for count in range(sampling_params.max_tokens or 0):
                await asyncio.sleep(PAUSE_S)
                if count == self.dies_at:
                    raise EngineDeadError("EngineCore encountered an issue")
                token = self.words[count % len(self.words)]
                over = "stop" if token in (sampling_params.stop_token_ids or ()) else None
                if over is None and count + 1 == sampling_params.max_tokens:
                    over = "length"
                output = self._output(request_id, prompt, token, over, sampling_params.logprobs)
                if count == 0 and sampling_params.prompt_logprobs is not None:
                    rival = {9: Logprob(-1.5, 1)} if sampling_params.prompt_logprobs else {}
                    ids = prompt["prompt_token_ids"]
                    output.prompt_logprobs = [None, *({token: Logprob(-2.5, 7)} | rival for token in ids[1:])]
                yield output
                if over is not None:
                    return
        except (asyncio.CancelledError, GeneratorExit):
            await self.abort(request_id)
            raise

    async def abort(self, request_id: str | Iterable[str], internal: bool = False) -> None:
        self.aborted.append(str(request_id))

    async def check_health(self) -> None:
        if self.down:
            raise EngineDeadError("EngineCore encountered an issue")

    def shutdown(self, timeout: float | None = None) -> None:
        self.down = True

    def _output(
        self, request_id: str, prompt: Any, token: int, over: str | None, reported: int | None
    ) -> RequestOutput:
        logprobs = None
        if reported is not None:
            logprobs = [{token: Logprob(-0.5, 1)} | ({9: Logprob(-1.5, 2)} if reported else {})]
        completion = CompletionOutput(0, "", [token], None, logprobs, over)
        return RequestOutput(request_id, None, prompt["prompt_token_ids"], None, [completion], over is not None, 4)

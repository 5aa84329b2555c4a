"""An engine that asks outside servers."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from models.generation import Delta, End, EngineStats, Failure, FinishReason, Job, Stream, Usage
from models.remote.http import client_of
from models.remote.parameters import BYTES_PER_TOKEN, RefusedError, parameters_of
from models.remote.servers import Server, Servers
from models.token_stream import TokenStream
from models.unexpected import type_and_line

log = logging.getLogger(__name__)

ABSENT = "engine=openai needs the package openai: install Parley with its extra `outside`"
REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.FILTERED,
}
MOST_ATTEMPTS = 4
MOST_WAITING = 1 << 20
"""Weight of what a reader has not read yet; a server that is faster has to wait."""
BYTES_PER_ASKED_TOKEN = 64
SLACK_BYTES = 4096
_MOST_COUNTED = 2**31 - 1
_TEXTS = ("content", "reasoning_content", "reasoning")
_PIECE = 4096  # characters of one delta: its tokens are the bytes
_OVERLOADED = 429
_BAD_REQUEST = range(400, 429)
_MISCONFIGURED = {401, 403, 404, 408}
"""Not the request's fault: another server may be right, or the same one later."""


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """`name` is this model's own name, `model` the one that the servers know. `is_vllm`: they take vLLM's
    parameters, and continue messages.

    context_length: Bytes of prompt and answer together.
    max_running: Answers of one server at once.
    connect_s, silence_s: How long a connection, and the next text of an answer, may take.
    longest_s: How long a whole answer may take.
    patience_s: How long a request waits while no server answers.
    """

    name: str
    model: str
    urls: tuple[str, ...]
    api_key: str = ""
    is_vllm: bool = False
    context_length: int = 1 << 19
    max_running: int = 64
    max_waiting: int = 4096
    connect_s: float = 5.0
    silence_s: float = 60.0
    longest_s: float = 3600.0
    patience_s: float = 60.0


class RemoteEngine:
    """Implements `models.generation.Engine`. A failure before the first token is retried, on another server if there is
    one; after it, the answer is continued if the servers can do that, else it ends as `partial`.
    """

    def __init__(self, options: RemoteOptions) -> None:
        """Raises `ModuleNotFoundError` if the package `openai` is missing."""
        self._options = options
        self._servers = servers_of(options)
        self._tasks: dict[TokenStream, asyncio.Task[None]] = {}
        self._reasons: dict[TokenStream, FinishReason] = {}

    @property
    def model_version(self) -> str:
        """The servers do not report their weights, so the names have to do."""
        return f"{self._options.name}@{self._options.model}"

    @property
    def context_length(self) -> int:
        return self._options.context_length

    @property
    def has_room(self) -> bool:
        return self._servers.has_room

    @property
    def stats(self) -> EngineStats:
        running = sum(stream.admitted_at is not None for stream in self._tasks)
        return EngineStats(running=running, waiting=len(self._tasks) - running)

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        return [self._submit(job) for job in jobs]

    async def start(self) -> None:
        """The servers may still be starting: the first request finds out."""

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._servers.stop()

    def _submit(self, job: Job) -> TokenStream:
        stream = TokenStream(self._cancel)
        answer = RemoteAnswer(job, stream)
        if len(self._tasks) >= self._options.max_running + self._options.max_waiting:
            answer.fail("overloaded", "the engine's queue is full; try again later")
            return stream
        task = asyncio.create_task(self._answer(answer))
        self._tasks[stream] = task
        task.add_done_callback(lambda done: self._over(done, answer))
        return stream

    async def _answer(self, answer: RemoteAnswer) -> None:
        import openai

        tried: list[Server] = []
        while not answer.ended:
            if answer.text and not self._options.is_vllm:
                answer.end(FinishReason.PARTIAL)
                return
            if answer.failures >= MOST_ATTEMPTS:
                answer.fail("engine_error", f"the servers of {self._options.name} failed ({answer.why})")
                return
            try:
                server = await self._servers.enter(tried, self._options.patience_s)
            except TimeoutError:
                answer.fail("overloaded", f"no server of {self._options.name} answers; try again later")
                return
            try:
                async with asyncio.timeout_at(answer.until(self._options.longest_s)):
                    await self._ask(server, answer)
            except RefusedError as error:
                answer.fail("invalid_request", str(error))
            except openai.APIStatusError as error:
                self._refused(server, answer, error)
            except Exception as error:  # noqa: BLE001 - what the client may raise is not known; it is logged
                answer.why, answer.failures = _kind(error), answer.failures + 1
                log.warning("%s failed in an answer: %s", server.url, _kind(error))
                server.failed(_kind(error))
            finally:
                self._servers.leave(server)
            tried.append(server)

    def _refused(self, server: Server, answer: RemoteAnswer, error: Any) -> None:
        """The server replied with an error instead of an answer."""
        if error.status_code in _BAD_REQUEST and error.status_code not in _MISCONFIGURED:
            log.warning("%s refuses a request: %s", server.url, _kind(error))
            answer.fail("invalid_request", f"the model's server refuses the request ({_kind(error)})")
            return
        answer.why = _kind(error)
        log.warning("%s refused an answer: %s", server.url, _kind(error))
        if error.status_code != _OVERLOADED:
            answer.failures += 1
            server.failed(_kind(error))
        elif time.monotonic() - answer.began > self._options.patience_s:
            answer.fail("overloaded", f"the servers of {self._options.name} are overloaded; try again later")
        else:
            server.failed(_kind(error), rest_s=_retry_after(error.response.headers))

    async def _ask(self, server: Server, answer: RemoteAnswer) -> None:
        """Read one stream of the server to its end, or to where it fails."""
        began = time.monotonic()
        answer.stream.admitted_at = answer.stream.admitted_at or time.time()
        is_first = True
        async with aclosing(self._chunks(server, answer)) as chunks:
            async for chunk in chunks:
                if is_first:
                    server.answered(time.monotonic() - began)
                    is_first = False
                answer.add(chunk)
                if answer.is_too_long:
                    log.warning("%s goes on behind the tokens that it was asked for: the answer is cut", server.url)
                    answer.end(FinishReason.LENGTH)
                    return
                await answer.stream.drained(MOST_WAITING)
        answer.finish()

    async def _chunks(self, server: Server, answer: RemoteAnswer) -> AsyncGenerator[Any, None]:
        options = self._options
        given = parameters_of(
            answer.job, options.model, options.context_length - len(answer.job.prompt), is_vllm=options.is_vllm
        )
        content = json.loads(bytes(answer.job.prompt))
        common = {**given, "stream": True, "stream_options": {"include_usage": True}}
        if "prompt" in content:
            create = server.client.completions.create(prompt=content["prompt"] + answer.text, **common)
        else:
            messages = list(content["messages"])
            continues = content.get("continues", False)
            if answer.text:
                message = {"role": "assistant", "content": answer.text}
                if continues:
                    message["content"] = messages.pop()["content"] + answer.text
                messages.append(message)
            if answer.text or continues:
                if not options.is_vllm:
                    raise RefusedError("continue_final_message: this model's server does not take it")
                more = {"continue_final_message": True, "add_generation_prompt": False}
                common["extra_body"] = {**common.get("extra_body", {}), **more}
            create = server.client.chat.completions.create(messages=messages, **common)
        async with asyncio.timeout(options.silence_s):
            chunks = await create
        try:
            iterator = aiter(chunks)
            silent_since = time.monotonic()
            while True:
                # Only text breaks the silence: a server could send empty chunks for ever.
                async with asyncio.timeout(max(0.0, silent_since + options.silence_s - time.monotonic())):
                    chunk = await anext(iterator, None)
                if chunk is None:
                    return
                yield chunk
                if _has_text(chunk):
                    silent_since = time.monotonic()
        finally:
            await chunks.close()

    def _over(self, task: asyncio.Task[None], answer: RemoteAnswer) -> None:
        self._tasks.pop(answer.stream, None)
        reason = self._reasons.pop(answer.stream, None)
        if answer.ended:
            return
        if task.cancelled():
            if reason is None:
                answer.stream.abandon()
            else:
                answer.end(reason)
            return
        error = task.exception()
        why = "the server ended it without a reason" if error is None else type_and_line(error)
        log.error("answer %r of %s failed: %s", answer.job.id, self._options.name, why)
        answer.fail("engine_error", f"the answer of {self._options.name} failed")

    def _cancel(self, stream: TokenStream, reason: FinishReason) -> None:
        if (task := self._tasks.get(stream)) is not None:
            self._reasons.setdefault(stream, reason)
            task.cancel()


class RemoteAnswer:
    """One answer: its text so far, and the events of its stream."""

    def __init__(self, job: Job, stream: TokenStream) -> None:
        self.job = job
        self.stream = stream
        self.text = bytes(job.generated).decode(errors="replace")
        self.ended = False
        self.began = time.monotonic()
        self.failures = 0
        self.why = ""
        self._index = len(job.generated)
        self._usage: Any = None
        self._reason: FinishReason | None = None
        self._most = self._index + BYTES_PER_ASKED_TOKEN * job.max_tokens + SLACK_BYTES

    def until(self, longest_s: float) -> float:
        """The event loop's time at which it has taken longer than that."""
        return asyncio.get_running_loop().time() + self.began + longest_s - time.monotonic()

    @property
    def is_too_long(self) -> bool:
        """Whether it has far more text than the job's tokens can have."""
        return self._index > self._most

    def add(self, chunk: Any) -> None:
        """Raises `ValueError` for a chunk that is none."""
        self._usage = getattr(chunk, "usage", None) or self._usage
        choices = getattr(chunk, "choices", None)
        if not isinstance(choices, list):
            raise ValueError("a chunk has no choices")  # noqa: TRY004 - the server's fault, not a caller's
        for choice in choices:
            delta = getattr(choice, "delta", None)
            text = getattr(choice, "text", None) if delta is None else getattr(delta, "content", None)
            if text:
                if not isinstance(text, str):
                    raise ValueError("a chunk's text is none")
                self._push(text)
            reason = getattr(choice, "finish_reason", None)
            if reason is not None:
                self._reason = REASONS.get(reason)
                if self._reason is None:
                    raise ValueError(f"the server ended the answer with {reason!r}")

    def _push(self, text: str) -> None:
        for at in range(0, len(text), _PIECE):
            piece = text[at : at + _PIECE]
            tokens = tuple(piece.encode())
            self.stream.push(Delta(self._index, tokens, piece))
            self._index += len(tokens)
        self.text += text

    def finish(self) -> None:
        """The server has closed the stream. Raises `ValueError` if the answer is not complete."""
        if self._reason is None:
            raise ValueError("the server closed the connection in the middle of the answer")
        self.end(self._reason)

    def end(self, reason: FinishReason) -> None:
        self.ended = True
        prompt, generated = (_count(self._usage, name) for name in ("prompt_tokens", "completion_tokens"))
        estimate = self._index // BYTES_PER_TOKEN
        # The server's figure is right, unless the answer was continued and the server counts the last part alone.
        is_whole = not self.job.generated and not self.failures
        usage = Usage(prompt or 0, generated if generated is not None and is_whole else estimate)
        self.stream.push(End(self._index, reason, usage))

    def fail(self, code: str, message: str) -> None:
        self.ended = True
        self.stream.push(Failure(self._index, code, (message.splitlines() or [code])[0]))


def servers_of(options: RemoteOptions) -> Servers:
    """Clients of the servers. Raises `ModuleNotFoundError` if the package `openai` is missing."""
    import openai

    timeout = openai.Timeout(options.silence_s, connect=options.connect_s)
    clients = {
        url: openai.AsyncOpenAI(
            base_url=url,
            api_key=options.api_key or "none",
            timeout=timeout,
            max_retries=0,
            http_client=client_of(timeout=timeout),
        )
        for url in options.urls
    }
    return Servers([Server(url, client) for url, client in clients.items()], options.max_running)


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds; a date, which few servers send, counts as one second."""
    try:
        return min(60.0, max(0.1, float(headers.get("retry-after", "1"))))
    except ValueError:
        return 1.0


def _kind(error: Any) -> str:
    """For users and the log: a server's message may quote a prompt or its key."""
    status = getattr(error, "status_code", None)
    return f"status {status}" if status else type(error).__name__


def _has_text(chunk: Any) -> bool:
    """Whether a chunk says or thinks something."""
    for choice in getattr(chunk, "choices", None) or ():
        delta = getattr(choice, "delta", None)
        if getattr(choice, "text", None) or any(getattr(delta, name, None) for name in _TEXTS):
            return True
    return False


def _count(usage: Any, name: str) -> int | None:
    """A figure of the server, if it is one."""
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and 0 <= value <= _MOST_COUNTED else None

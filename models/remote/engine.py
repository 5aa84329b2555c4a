"""An engine that asks outside servers."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from models.interface.generation import EngineStats, FinishReason, Job, Stream
from models.interface.token_stream import TokenStream
from models.interface.unexpected import type_and_line
from models.remote.answer import RemoteAnswer
from models.remote.chunk import Chunk
from models.remote.chunks import Chunks
from models.remote.content import Content, ids_of, text_of_ids
from models.remote.http import ServerMisbehaved, client_of
from models.remote.parameters import ParameterError, parameters_of
from models.remote.servers import ModelServer, Servers

log = logging.getLogger(__name__)

ABSENT = "engine=openai needs the package openai: install Parley with its extra `outside`"
MOST_FAILURES = 4
MOST_WAITING = 1 << 20
"""Weight of what a reader has not read yet; a server that is faster has to wait."""
_END_S = 0.1
_BEHIND_S = 2.0
"""How long the usage may come behind the reason of an answer, which is over."""
_OVERLOADED = 429
_TOO_LONG = {400, 413, 422, 429}
"""TGI says 422; OpenAI says 429 of a prompt that is larger than a minute's tokens."""
_TOO_LONG_TEXT = re.compile(
    r"context.?(length|window|size)|maximum (input|prompt) length|too many tokens|max_new_tokens|request too large"
    r"|must have less than \d+ tokens",
    re.IGNORECASE,
)
"""What OpenAI, vLLM, llama.cpp, TGI and proxies before them say of a prompt that does not fit."""
_BAD_REQUEST = range(400, 429)
_MISCONFIGURED = {401, 403, 404, 408}
"""Not the request's fault: another server may be right, or the same one later."""
_UNREACHABLE = {"ConnectError", "ConnectTimeout"}
"""What the clients' packages call a server that no connection reaches."""


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """`name` is this model's own name, `model` the one that the servers know. `is_vllm`: they take vLLM's
    parameters, and continue messages.

    context_length: Bytes of prompt and answer together.
    max_running: Answers of one server at once.
    connect_s, silence_s: How long a connection, and the next text of an answer, may take.
    longest_s: How long a whole answer may take.
    patience_s: How long a request waits while no server answers.
    redraws: A sampled answer that is resumed goes on, with other words; else it ends as `partial`.
    azure_version: The `api-version` of Azure OpenAI's REST API; `urls` are its endpoints then, `model` a deployment.
    has_length: The servers say `length` where `max_tokens` ends an answer; Triton's frontend says `stop` of all ends.
    """

    name: str
    model: str
    urls: tuple[str, ...]
    api_key: str = ""
    is_vllm: bool = False
    context_length: int = 1 << 19
    max_running: int = 128
    max_waiting: int = 4096
    connect_s: float = 5.0
    silence_s: float = 60.0
    longest_s: float = 3600.0
    patience_s: float = 60.0
    redraws: bool = True
    azure_version: str = ""
    has_length: bool = True


class _StoppedBefore(Exception):  # noqa: N818  what happened
    """What readers have ends in a stop string already: only the end is missing."""


class RemoteEngine:
    """Implements `Engine`. A failure before the first token is retried, on another server if there is
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
        return EngineStats(running=running, waiting=len(self._tasks) - running, servers=self._servers.stats)

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
        options = self._options
        answer = RemoteAnswer(job, stream, stops_here=options.is_vllm, has_length=options.has_length)
        if len(self._tasks) >= self._options.max_running + self._options.max_waiting:
            answer.fail("overloaded", "the engine's queue is full; try again later")
            return stream
        task = asyncio.create_task(self._answer(answer))
        self._tasks[stream] = task
        task.add_done_callback(lambda done: self._over(done, answer))
        return stream

    async def _answer(self, answer: RemoteAnswer) -> None:
        import openai

        tried: list[ModelServer] = []
        while not answer.ended:
            if answer.is_full:
                answer.end(FinishReason.LENGTH)
                return
            if answer.has_begun and not self._goes_on(answer.job):
                answer.end(FinishReason.PARTIAL)
                return
            if answer.failures >= MOST_FAILURES:
                answer.fail("engine_error", f"the servers of {self._options.name} failed ({answer.why})")
                return
            try:
                server = await self._servers.enter(tried, self._options.patience_s, answer.job.user)
            except TimeoutError:
                answer.fail("overloaded", f"no server of {self._options.name} answers; try again later")
                return
            try:
                await self._ask(server, answer)
            except _StoppedBefore:
                answer.end(FinishReason.STOP)
            except ParameterError as error:
                _refuse(answer, str(error))
            except openai.APIStatusError as error:
                self._refused(server, answer, error, tried)
            except Exception as error:  # noqa: BLE001 - what the client may raise is not known; it is logged
                log.warning("%s failed in an answer: %s", server.address, _kind(error))
                self._failed(server, answer, error, tried)
            finally:
                self._servers.leave(server)
            tried.append(server)
            if server.is_suspect:
                await self._servers.check(server)

    def _failed(
        self, server: ModelServer, answer: RemoteAnswer, error: Exception, tried: Sequence[ModelServer]
    ) -> None:
        """One more attempt of the answer has failed. What fails at another server, too, is the request's fault."""
        answer.why, answer.failures = _kind(error), answer.failures + 1
        others = {one for one in tried if one is not server}
        is_unreachable = any(type(one).__name__ in _UNREACHABLE for one in _causes(error))
        for one in others:
            one.excuse(answer.job.id)
        server.failed(_kind(error), request=answer.job.id, user=answer.job.user, is_unreachable=is_unreachable)
        if others and not is_unreachable:
            server.excuse(answer.job.id)

    def _goes_on(self, job: Job) -> bool:
        """Whether the servers can go on behind what readers have. A grammar of theirs would begin anew in the middle,
        and so would the words of a server that cannot continue a message. Penalties would not count what was written.
        """
        redraws = not job.sampling.is_determined
        return self._options.is_vllm and job.constraint is None and (self._options.redraws or not redraws)

    def _refused(self, server: ModelServer, answer: RemoteAnswer, error: Any, tried: Sequence[ModelServer]) -> None:
        """The server replied with an error instead of an answer."""
        is_too_long = error.status_code in _TOO_LONG and _says_too_long(error)
        if is_too_long and self._shorten(answer):
            return
        if is_too_long or (error.status_code in _BAD_REQUEST and error.status_code not in _MISCONFIGURED):
            log.warning("%s refuses a request: %s", server.address, _kind(error))
            filtered = ": its content filter" if error.code == "content_filter" else ""
            _refuse(answer, f"the model's server refuses the request ({_kind(error)}{filtered})")
            return
        log.warning("%s refused an answer: %s", server.address, _kind(error))
        if error.status_code != _OVERLOADED:
            self._failed(server, answer, error, tried)
        elif time.monotonic() - answer.began > self._options.patience_s:
            answer.fail("overloaded", f"the servers of {self._options.name} are overloaded; try again later")
        else:
            server.failures += 1
            server.open(_kind(error), _retry_after(error.response.headers))

    def _shorten(self, answer: RemoteAnswer) -> bool:
        """Whether the request can be asked again with fewer of its older turns: only the server knows its context."""
        content = Content.of(answer.job.prompt, answer.begun)
        if content.prompt is not None or content.shortened(answer.halvings + 1) is None:
            return False
        answer.halvings += 1
        log.info("%s: older turns of a request are left out, they do not fit", self._options.name)
        return True

    async def _ask(self, server: ModelServer, answer: RemoteAnswer) -> None:
        """Read one stream of the server to its end, or to where it fails. What fails behind the end is no failure."""
        try:
            async with asyncio.timeout_at(answer.until(self._options.longest_s)):
                await self._read(server, answer)
        except Exception as error:
            if not answer.is_over:
                raise
            server.note(f"no end of its stream behind that of an answer ({_kind(error)})")
            if not answer.ended:
                answer.finish()

    async def _read(self, server: ModelServer, answer: RemoteAnswer) -> None:
        began, silence_s = time.monotonic(), self._options.silence_s
        now = asyncio.get_running_loop().time
        answer.stream.admitted_at = answer.stream.admitted_at or time.time()
        answer.begin_stream(server.note)
        async with (
            asyncio.timeout(silence_s) as silence,
            await self._asked(server, answer) as response,
            aclosing(response.iter_bytes()) as parts,
        ):
            chunks, is_first = Chunks(server.note), True

            def add(some: Iterable[Chunk]) -> bool:
                """Whether the answer is cut here."""
                nonlocal is_first
                for chunk in some:
                    was_over = answer.is_over
                    answer.add(chunk)
                    if is_first:
                        server.answered(time.monotonic() - began)
                        is_first = False
                    if self._is_cut(server, answer):
                        return True
                    if answer.is_over and not was_over:
                        silence.reschedule(now() + _BEHIND_S)
                    elif chunk.has_text and not was_over:  # a server could send empty chunks for ever
                        silence.reschedule(now() + silence_s)
                return False

            async for part in parts:
                if add(chunks.add(part)):
                    return
                if chunks.ended:
                    break
                if answer.stream.is_ahead(MOST_WAITING) and not answer.is_over:
                    silence.reschedule(None)
                    await answer.stream.drained(MOST_WAITING)
                    silence.reschedule(now() + silence_s)
            if not add(chunks.close()):
                answer.finish(is_whole=chunks.ended and not self._options.is_vllm)
                await _read_the_end(parts)

    @staticmethod
    def _is_cut(server: ModelServer, answer: RemoteAnswer) -> bool:
        """Whether the answer has ended before the server's stream has."""
        if answer.stopped:
            answer.end(FinishReason.STOP)
        elif answer.is_too_long:
            log.warning("%s goes on behind the tokens that it was asked for: the answer is cut", server.address)
            answer.end(FinishReason.LENGTH)
        return answer.ended

    async def _asked(self, server: ModelServer, answer: RemoteAnswer) -> Any:
        """The server's response, when it is entered: its stream of the rest."""
        options, job = self._options, answer.rest
        room = options.context_length - len(job.prompt)
        common = parameters_of(job, options.model, room, is_vllm=options.is_vllm)
        common |= {"stream": True, "stream_options": {"include_usage": True}}
        if job.trace:
            common["extra_headers"] = {name: value.decode("latin-1") for name, value in job.trace}
        content = Content.of(job.prompt, answer.begun)
        content = content.shortened(answer.halvings) or content
        if options.is_vllm:
            common["extra_body"] = {**common.get("extra_body", {}), "return_token_ids": True}
        if answer.ids:
            ids = await ids_of(server.client, options.model, content)
            if job.stop:
                answer.restore(answer.begun + await text_of_ids(server.client, options.model, answer.ids))
                if answer.stopped:
                    raise _StoppedBefore
            common.setdefault("max_tokens", max(1, ids.room - len(answer.ids)))
            return server.client.completions.with_streaming_response.create(prompt=[*ids.tokens, *answer.ids], **common)
        if content.prompt is not None:
            return server.client.completions.with_streaming_response.create(prompt=content.prompt, **common)
        if content.continues:
            if not options.is_vllm:
                raise ParameterError("continue_final_message: this model's server does not take it")
            common["extra_body"] |= {"continue_final_message": True, "add_generation_prompt": False}
        if options.azure_version and "max_tokens" in common:  # which its newer models refuse
            common["max_completion_tokens"] = common.pop("max_tokens")
        return server.client.chat.completions.with_streaming_response.create(messages=content.messages, **common)

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


def _refuse(answer: RemoteAnswer, why: str) -> None:
    """What readers have of an answer is not made an error by the server that should go on."""
    if answer.has_begun:
        answer.end(FinishReason.PARTIAL)
    else:
        answer.fail("invalid_request", why)


def servers_of(options: RemoteOptions) -> Servers:
    """Clients of the servers. Raises `ModuleNotFoundError` if the package `openai` is missing."""
    import openai

    timeout = openai.Timeout(options.silence_s, connect=options.connect_s)
    common: dict[str, Any] = {"api_key": options.api_key or "none", "timeout": timeout, "max_retries": 0}

    def client(url: str) -> Any:
        http = client_of(timeout=timeout)
        if options.azure_version:
            version = options.azure_version
            return openai.AsyncAzureOpenAI(azure_endpoint=url, api_version=version, http_client=http, **common)
        return openai.AsyncOpenAI(base_url=url, http_client=http, **common)

    return Servers([ModelServer(url, client(url)) for url in options.urls], options.max_running)


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds; a date, which few servers send, counts as one second."""
    try:
        return min(60.0, max(0.1, float(headers.get("retry-after", "1"))))
    except ValueError:
        return 1.0


def _says_too_long(error: Any) -> bool:
    return _TOO_LONG_TEXT.search(f"{error.code} {error.type} {error.message}") is not None


def _kind(error: Any) -> str:
    """For users and the log: a server's message may quote a prompt or its key; what is Parley's own quotes nothing. The
    cause counts: the client wraps a refused connection into one that took too long.
    """
    last = [one for one in _causes(error) if isinstance(one, Exception)][-1]
    status = getattr(last, "status_code", None)
    return f"status {status}" if status else str(last) if isinstance(last, ServerMisbehaved) else type(last).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


async def _read_the_end(parts: AsyncIterator[bytes]) -> None:
    """A connection can be used again once the end of its body was read, which may come after the last chunk."""
    with suppress(Exception):
        async with asyncio.timeout(_END_S):
            await anext(parts, None)

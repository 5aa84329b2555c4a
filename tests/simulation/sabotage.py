"""What goes wrong about one request within a worker: an exception at some stage, or rubbish from its model.

The id of such a request names both: `bad-render-KeyError-7` raises a `KeyError` while its prompt is built, and
`bad-model-nan-7` has a model that reports a log probability which is none.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from unittest.mock import patch

from aiokafka.errors import MessageSizeTooLargeError

from models.interface.chat import ModelCall
from models.interface.generation import Delta, End, Failure, FinishReason, Job, StreamEvent, TokenLogprob, Usage
from models.served.paced import PacedStream, text_of, word
from tests.simulation.world import SteppedLoop

STAGES = {
    "decode": ("agents.requests", "read_request"),
    "validate": ("agents.requests", "validate_request"),
    "admit": ("agents.requests", "_left_s"),
    "queue": ("agents.requests.Requests", "_queue"),
    "begin": ("app.answering.run.Run", "remembered"),
    "refuse": ("app.features.quota.stage.Charged", "decide"),
    "decide": ("app.features.routing.stage.Routing", "decide"),
    "find": ("app.features.guard.masking.Masked", "decide"),
    "hide": ("app.features.guard.masking.Masked", "see"),
    "judge": ("app.features.guard.moderation.Moderated", "decide"),
    "recall": ("app.features.recall.stage.Recalling", "decide"),
    "render": ("app.answering.pipeline", "prompt_of"),
    "constrain": ("app.answering.pipeline", "job_of"),
    "write": ("app.answering.pipeline.Answering", "_write"),
    "end": ("app.answering.pipeline.Answering", "_end"),
    "keep": ("app.features.guard.masking.Masked", "ended"),
    "leave": ("app.features.guard.masking.Masked", "leave"),
    "commit": ("app.answering.containment", "commit_of"),
    "charge": ("app.features.quota.stage.Charged", "committed"),
    "index": ("app.features.guard.masking.Masking", "indexed"),
}
"""Where each exception is raised: the name of a function, or a method of a class, that has to do with one request."""

# Some are those by which clients of Kafka report a broker that is away.
EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("no such value"),
    "KeyError": lambda: KeyError("M4DGP1KM"),
    "TypeError": lambda: TypeError("unhashable type: 'list'"),
    "OverflowError": lambda: OverflowError("int too large to convert to float"),
    "RecursionError": lambda: RecursionError("maximum recursion depth exceeded"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "RuntimeError": lambda: RuntimeError("generator raised StopIteration"),
    "AssertionError": AssertionError,
    "OSError": lambda: OSError(24, "Too many open files"),
    "TimeoutError": TimeoutError,
    "MessageSizeTooLargeError": MessageSizeTooLargeError,
    "ExceptionGroup": lambda: ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("one of them")]),
}

DEATH = "Death"
"""No exception: the process ends there."""
DEADLY = ("find", "judge", "recall", "hide", "write")
"""Stages at which a process may end: they can wait until it has."""

MODELS = ("raises", "submit", "text", "logprobs", "calls", "depth", "failure", "code", "endless", "kelvin", "surrogate",
          "nan", "token")  # fmt: skip
"""What a model may do; see `HostileStream`."""

_ID = re.compile(r"\bbad-([a-z]+)-([A-Za-z]+)-[0-9]+")
_HUGE = 3 << 20


def sabotaged(id: str) -> tuple[str, str] | None:  # noqa: A002 - an id of a job, too
    """The stage at which that request fails, and how."""
    named = _ID.search(id)
    return None if named is None else (named[1], named[2])


@contextmanager
def saboteurs() -> Iterator[None]:
    """Let requests fail at the stages that their ids name."""
    with ExitStack() as stack:
        for stage, (path, name) in STAGES.items():
            owner = _owner(path)
            stack.enter_context(patch.object(owner, name, _failing(stage, getattr(owner, name))))
        yield


def _owner(path: str) -> Any:
    """The module, or the class of one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def _failing(stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def check(*arguments: Any) -> None:
        if (fails := sabotaged(_id_in(arguments))) is not None and fails[0] == stage and fails[1] in EXCEPTIONS:
            error = EXCEPTIONS[fails[1]]()
            raise error

    if inspect.iscoroutinefunction(call):

        async def later(*arguments: Any, **more: Any) -> Any:
            if sabotaged(_id_in(arguments)) == (stage, DEATH):
                loop = cast("SteppedLoop", asyncio.get_running_loop())
                loop.world.after(0.0, loop.end_process)
                await loop.create_future()
            check(*arguments)
            return await call(*arguments, **more)

        return later

    def now(*arguments: Any, **more: Any) -> Any:
        check(*arguments)
        return call(*arguments, **more)

    return now


def _id_in(arguments: Sequence[Any]) -> str:
    """The id of the request that a call is about, "" if it is about none."""
    for one in arguments:
        if isinstance(one, bytes):
            return one.decode(errors="replace")
        one = getattr(one, "run", one)  # noqa: PLW2901 - a stage is about its request
        one = getattr(one, "accepted", one)  # noqa: PLW2901
        found = getattr(getattr(one, "request", one), "request_id", None)
        if isinstance(found, str):
            return found
    return ""


def check_submit(jobs: Sequence[Job]) -> None:
    """Raise what a batch with such a job makes the engine raise."""
    if any(sabotaged(job.id) == ("model", "submit") for job in jobs):
        raise OverflowError("int too large to convert to float")


class HostileStream(PacedStream):
    """A model that breaks what the worker may expect of it, in the way that the job's id names."""

    def __init__(self, job: Job, pause_s: float, version: str, how: str) -> None:
        super().__init__(job, pause_s, version)
        self._how = how

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        job, index = self._job, len(self._job.generated)
        await asyncio.sleep(self._pause_s)
        if not index:
            token, text = word(job.prompt, 0, self._version)
            yield Delta(0, (token,), text)
            index = 1
            await asyncio.sleep(self._pause_s)
        event = self._event(index)
        if event is not None:
            yield event
            if isinstance(event, Delta):
                index += len(event.tokens)
                yield End(index, FinishReason.STOP, Usage(len(job.prompt), index))

    def _event(self, index: int) -> StreamEvent | None:
        usage = Usage(len(self._job.prompt), index)
        match self._how:
            case "raises":
                raise RuntimeError("CUDA error: device-side assert triggered")
            case "text":
                return Delta(index, (7,), "x" * _HUGE)
            case "logprobs":
                top = tuple((token, -1.2345678901234567 - token) for token in range(20))
                tokens = (7,) * 1000
                return Delta(index, tokens, text_of(7) * 1000, tuple(TokenLogprob(7, -0.1, top) for _ in tokens))
            case "calls":
                return End(index, FinishReason.TOOL_CALLS, usage, calls=(ModelCall("f", '"' + "x" * _HUGE + '"'),))
            case "depth":
                return End(index, FinishReason.TOOL_CALLS, usage, calls=(ModelCall("f", "[" * 100_000),))
            case "failure":
                return Failure(index, "engine_error", "x" * _HUGE)
            case "code":
                return Failure(index, "no such\ncode", "\ud800")
            case "kelvin":
                shown = re.search(rb"<[A-Z_]+_[A-Z0-9]+>", bytes(token % 256 for token in self._job.prompt))
                tag = "" if shown is None else shown[0].decode().replace("K", "\u212a").replace("S", "\u017f")
                return Delta(index, (7,), f"{tag} ")
            case "surrogate":
                return Delta(index, (7,), "\ud800")
            case "nan":
                return Delta(index, (7,), " w7", (TokenLogprob(7, float("nan"), ((7, float("-inf")),)),))
            case "token":
                return Delta(index, (2**70,), " w7")
        return None  # it ends without an end

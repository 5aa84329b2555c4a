"""The functions of a program, and their runs.

A record of `tool-calls` named `agent:NAME` has the request and all steps that are over. What it asks for is the next
command. A run that waits in memory for the outcome of just that last step goes on; otherwise the function runs from its
beginning and gets the outcomes of the record. So it does not matter which process reads which record, or how often.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from parley_client.agents.step import AgentRequest, ChangedError, Command, PastStep, Step, Steps, check_same
from parley_client.tools.serving import serve

log = logging.getLogger("parley_client.agents")

Program = Callable[[Step, AgentRequest], Awaitable[str | None]]
Headers = list[tuple[str, bytes]]

_PREFIX = "agent:"
_TRACES = {"traceparent", "tracestate"}
_MOST_KEPT = 1000
"""Runs that wait in memory for an outcome; of another one the function begins again."""
_MOST_BYTES = 900_000
_FIELDS = ("request_id", "user_id", "conversation_id", "prompt", "agent", "tenant")


class _Run:
    """A function on its way, which waits for the outcome of its last step."""

    def __init__(self, program: Program, request: AgentRequest, past: list[PastStep]) -> None:
        self._program, self._request = program, request
        self.steps = Steps(past)
        self._task: asyncio.Task[None] | None = None

    async def command(self, past: list[PastStep]) -> Command:
        """What the function does next."""
        steps = self.steps
        asked: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        steps.asked = asked
        if self._task is None:
            self._task = asyncio.create_task(self._to_its_end())
        else:
            steps.go_on(past)
        waits: set[asyncio.Future[Any]] = {asked, self._task}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        return self._failed(self._task)

    async def _to_its_end(self) -> None:
        said = await self._program(Step(self._request, self.steps), self._request)
        if said is not None:
            await self.steps.outcome({"command": "say", "text": said})
        await self.steps.outcome({"command": "end"})

    def _failed(self, task: asyncio.Task[None]) -> Command:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if (error := self.steps.changed or error) is self.steps.changed:
            log.error("request %s: %s", self._request.request_id, error)
            return {"command": "fail", "message": str(error)}
        log.error("request %s: its program has failed", self._request.request_id, exc_info=error)
        name = type(error).__name__  # its words are for the log of this program
        return {"command": "fail", "message": f"the program has failed ({name})"}

    def waits_for(self, past: list[PastStep]) -> bool:
        """Whether the last of these outcomes is the one that it waits for."""
        made = self.steps.made
        return self.steps.waiting is not None and len(made) == len(past) and _are_same(past, made)

    def has_asked(self, past: list[PastStep]) -> Command | None:
        """The command that it has given behind these steps already."""
        *before, last = self.steps.made or [{}]
        is_so = self.steps.waiting is not None and len(before) == len(past) and _are_same(past, before)
        return last if is_so else None

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task


def _are_same(past: list[PastStep], made: list[Command]) -> bool:
    try:
        for number, (then, now) in enumerate(zip(past, made, strict=True), start=1):
            check_same(number, then.command, now)
    except ChangedError:
        return False
    return True


class Agents:
    """Runs its functions for the requests of agents that are programs, and leaves all other calls to others."""

    def __init__(self) -> None:
        self._programs: dict[str, Program] = {}
        self._runs: OrderedDict[tuple[str, str], _Run] = OrderedDict()
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    def agent(self, name: str) -> Callable[[Program], Program]:
        """Decorate the function of the agent `name`. A text that it returns is said at the end."""

        def decorated(program: Program) -> Program:
            if name in self._programs:
                raise ValueError(f"there are two agents {name}")
            self._programs[name] = program
            return program

        return decorated

    def run(self, brokers: str, *, group: str | None = None, prefix: str = "", **options: Any) -> None:
        """Run until the program is stopped; `options` are those of aiokafka's clients. Processes of one `group` share
        the work; by default it is named by the agents.
        """
        asyncio.run(self.serve(brokers, group=group, prefix=prefix, **options))

    async def serve(self, brokers: str, *, group: str | None = None, prefix: str = "", **options: Any) -> None:
        """As `run`, until cancelled."""
        name = group or "-".join(["parley-agent", *sorted(self._programs)])
        try:
            await serve(self.next, brokers, name, prefix, options)
        finally:
            for run in self._runs.values():
                await run.stop()
            self._runs.clear()

    async def next(
        self, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
    ) -> tuple[bytes, Headers] | None:
        """The record for `tool-results` to a record of `tool-calls`; None if it asks no agent of these, or its time is
        over.
        """
        given = [(name, one) for name, one in headers if one is not None]
        if dict(given).get("content-type") == b"application/x-protobuf":
            raise ValueError("the workers write Protobuf (PARLEY_WIRE_FORMAT): programs read JSON")
        call = _call_in(value)
        if call is None:
            return None
        left_s = call["expires_at"] / 1000 - time.time()
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                command = await self.command(call["name"].removeprefix(_PREFIX), json.loads(call["arguments"]))
        except TimeoutError:
            log.warning("call %s: its time was over before the program made its next step", call["tool_call_id"])
            return None
        if command is None:
            return None
        content = json.dumps(command, ensure_ascii=False)
        if len(content.encode(errors="replace")) > _MOST_BYTES:
            content = json.dumps({"command": "fail", "message": f"a step has more than {_MOST_BYTES} bytes"})
        ids = {name: call[name] for name in ("tool_call_id", "request_id", "user_id")}
        record = json.dumps({**ids, "content": content}, ensure_ascii=False).encode(errors="replace")
        return record, [one for one in given if one[0] in _TRACES]

    async def command(self, name: str, asked: dict[str, Any]) -> Command | None:
        """What comes next for the arguments of a call; None if there is no such agent here."""
        if (program := self._programs.get(name)) is None:
            return None
        told, past = asked["request"], [PastStep(one["command"], one["outcome"]) for one in asked["steps"]]
        request = AgentRequest(**{name: told.get(name) for name in _FIELDS}, messages=tuple(told.get("messages") or ()))
        key = (request.user_id, request.request_id)
        async with self._locks.setdefault(key, asyncio.Lock()):
            run = self._runs.pop(key, None)
            if run is not None and (known := run.has_asked(past)) is not None:
                self._runs[key] = run
                return known
            if run is not None and not run.waits_for(past):
                await run.stop()
                run = None
            run = run or _Run(program, request, past)
            try:
                command = await run.command(past)
            except asyncio.CancelledError:
                await run.stop()
                raise
            if command["command"] in {"end", "fail"}:
                await run.stop()
                self._locks.pop(key, None)
            else:
                await self._keep(key, run)
            return command

    async def _keep(self, key: tuple[str, str], run: _Run) -> None:
        if (other := self._runs.pop(key, None)) is not None:
            await other.stop()
        self._runs[key] = run
        while len(self._runs) > _MOST_KEPT:
            gone, oldest = self._runs.popitem(last=False)
            self._locks.pop(gone, None)
            await oldest.stop()


def _call_in(value: bytes | None) -> dict[str, Any] | None:
    """The call in a record that asks a program."""
    try:
        call = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        log.error("a record of tool-calls cannot be read: %s", type(error).__name__)
        return None
    is_step = isinstance(call, dict) and str(call.get("name", "")).startswith(_PREFIX)
    return call if is_step else None

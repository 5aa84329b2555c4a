"""Over HTTP, through any gateway: a stream that breaks goes on behind the last event, here or at another gateway."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx

from parley_client.errors import RefusedError, UnreachableError
from parley_client.transport import Record, Records

log = logging.getLogger(__name__)

SILENT_S = 15.0
"""A gateway sends a comment every 5 seconds while an answer waits; one that misses three hangs."""
_CALL_S = 60.0
"""Longer than a gateway waits for anything before it replies."""
_LONGEST_PAUSE_S = 2.0
_TOLD_AFTER_S = 5.0
"""A program that waits in silence looks as if it hung."""
_AGAIN = frozenset({429, 500, 502, 503, 504})


class _AgainError(Exception):
    """The same call may succeed later; `refused` is what it got now."""

    def __init__(self, refused: RefusedError) -> None:
        super().__init__(str(refused))
        self.refused = refused


class _BehindTheEndError(Exception):
    """The gateway has nothing behind the index that was read last."""


class HttpTransport:
    """`user` is named in each call, as without keys or with a tenant's key; with a user's own key it is not needed."""

    def __init__(
        self, url: str, key: str | None, user: str | None, patience_s: float, silent_s: float = SILENT_S
    ) -> None:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        params = {} if user is None else {"user_id": user}
        timeout = httpx.Timeout(10.0, read=_CALL_S)
        self._http = httpx.AsyncClient(base_url=url.rstrip("/"), headers=headers, params=params, timeout=timeout)
        self._patience_s = patience_s
        self._is_told = False
        self._silent = httpx.Timeout(10.0, read=silent_s)

    async def start(self) -> None:
        """A connection is made by the first call."""

    async def stop(self) -> None:
        await self._http.aclose()

    async def ask(self, request: dict[str, Any]) -> Records:
        # A request that was sent twice under one id is one request, so it is sent again until a gateway has it.
        await self._call("POST", "/v1/requests", json=request, timeout=self._silent)
        return self.follow(request["request_id"], 0)

    async def follow(self, request_id: str, after: int) -> Records:
        heard_at, pause_s = time.monotonic(), 0.1
        last: Record = {}
        while True:
            try:
                async for place, event in self._stream(request_id, after):
                    heard_at, pause_s = time.monotonic(), 0.1
                    after = place if place is not None else after
                    if event is None:
                        continue
                    last = event
                    yield 0, None, event
            except _BehindTheEndError:
                yield 0, None, await self._whole(request_id, after, last)
                return
            except (httpx.TransportError, _AgainError) as error:
                self._check_patience(heard_at, error)
            else:
                # A stream without an end: its gateway has stopped, or knows no such request.
                await self._call("GET", _path(request_id))
                self._check_patience(heard_at, "the streams end without the answer's end")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _whole(self, request_id: str, after: int, last: Record) -> Record:
        """The end of an answer whose tokens are in no log any more, as after a move to other topics: its turn has the
        text alone, which takes the place of what was read of it.
        """
        answer = await self._call("GET", _path(request_id))
        if answer["index"] or not answer["text"]:
            raise RefusedError(204, "invalid_request", f"after: the answer has ended before {after}", "after")
        about = {name: last.get(name, answer[name]) for name in ("request_id", "user_id", "conversation_id")}
        return {**answer, **about, "type": answer["status"], "epoch": int(last.get("epoch", -1)) + 1}

    async def cancel(self, request_id: str) -> None:
        await self._call("DELETE", _path(request_id))

    async def search(self, query: str, **filters: Any) -> list[dict[str, Any]]:
        found = await self._call("GET", "/v1/search", params={"q": query, **filters})
        hits: list[dict[str, Any]] = found["hits"]
        return hits

    async def conversations(self) -> list[str]:
        return [one["conversation_id"] for one in await self._pages("/v1/conversations", "conversations")]

    async def turns(self, conversation: str) -> list[Record]:
        return await self._pages(f"/v1/conversations/{quote(conversation, safe='')}", "turns")

    async def _pages(self, path: str, name: str) -> list[Record]:
        entries: list[Record] = []
        after: dict[str, str] = {}
        while True:
            page = await self._call("GET", path, params=after)
            entries += page[name]
            if not page.get("has_more") or not page.get("last_id"):
                return entries
            after = {"after": page["last_id"]}

    async def _stream(self, request_id: str, after: int) -> AsyncGenerator[tuple[int | None, Record | None], None]:
        headers = {"accept": "text/event-stream", **({"last-event-id": str(after)} if after else {})}
        path = f"{_path(request_id)}/events"
        async with self._http.stream("GET", path, headers=headers, timeout=self._silent) as reply:
            if reply.status_code == 204:
                raise _BehindTheEndError
            if reply.status_code != 200:
                await reply.aread()
                raise _refusal(reply)
            async for block in _blocks(reply.aiter_bytes()):
                place = next((int(line[3:]) for line in block if line.startswith(b"id:")), None)
                data = b"\n".join(line[5:].removeprefix(b" ") for line in block if line.startswith(b"data:"))
                yield place, json.loads(data) if data else None

    async def _call(self, method: str, path: str, **arguments: Any) -> Any:
        began, pause_s = time.monotonic(), 0.1
        while True:
            try:
                reply = await self._http.request(method, path, **arguments)
                if reply.is_success:
                    return reply.json()
                raise _refusal(reply)
            except (httpx.TransportError, _AgainError) as error:
                self._check_patience(began, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _check_patience(self, since: float, cause: object) -> None:
        waited_s = time.monotonic() - since
        if waited_s < self._patience_s:
            if waited_s >= _TOLD_AFTER_S and not self._is_told:
                self._is_told = True
                what = str(cause) or type(cause).__name__
                log.warning("%s: nothing was heard for %.0f s: %s; trying again", self._http.base_url, waited_s, what)
            return
        if isinstance(cause, _AgainError):
            raise cause.refused
        what = str(cause) or type(cause).__name__
        raise UnreachableError(f"{self._http.base_url}: nothing was heard for {self._patience_s:g} s: {what}")


def _path(request_id: str) -> str:
    """An id with a slash or dots alone would name another resource: `../users/nina` is no request."""
    if request_id in {".", ".."}:
        raise RefusedError(404, "not_found", f"there is no request {request_id!r}", "request_id")
    return f"/v1/requests/{quote(request_id, safe='')}"


async def _blocks(parts: AsyncIterator[bytes]) -> AsyncGenerator[list[bytes], None]:
    """The events of a stream, as lines; a text may have other line breaks than the format's."""
    rest = b""
    async for part in parts:
        *blocks, rest = (rest + part).split(b"\n\n")
        for block in blocks:
            yield block.split(b"\n")


def _refusal(reply: httpx.Response) -> Exception:
    try:
        error = reply.json()["error"]
        refused = RefusedError(reply.status_code, error["code"], error["message"], error.get("param"))
    except (ValueError, KeyError, TypeError):
        refused = RefusedError(reply.status_code, "http_error", f"HTTP {reply.status_code}")
    return _AgainError(refused) if reply.status_code in _AGAIN else refused

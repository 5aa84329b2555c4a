"""An outside server that speaks chat completions, and misbehaves on request."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiohttp import web

WORDS = [f"w{number} " for number in range(200)]
PROMPT_IDS = [700, 701, 702]
"""Of any prompt."""


class OutsideServer:
    """Answers with `WORDS`, one a chunk; a continued message goes on behind the words that it has.

    With `tells_ids` it does as vLLM does: the id of a word is its number, and it goes on behind ids. With `echo` it
    repeats what the user says, twice, three characters a chunk. `trouble` is what is wrong with it, `after` how many
    words it says before that, `says_most` behind how many it waits for as long as that is set, `bodies` what it was
    asked, and `asked_at` when, in monotonic seconds.
    """

    def __init__(self) -> None:
        self.trouble = ""
        self.echo = False
        self.tells_ids = False
        self.tokenized: list[dict[str, Any]] = []
        self.after = 0
        self.room: int | None = None  # so many messages fit into its context
        self.too_long = (400, "This model's maximum context length is 64 tokens.")
        self.pause_s = 0.0
        self.says_most: int | None = None
        self.bodies: list[dict[str, Any]] = []
        self.asked_at: list[float] = []
        self.headers: dict[str, str] = {}
        self.probes = 0
        self.models_status = 200
        self.left = 0
        self.url = ""

    async def models(self, _request: web.Request) -> web.Response:
        self.probes += 1
        if self.trouble == "500":
            raise web.HTTPInternalServerError
        if self.models_status != 200:
            return web.json_response({"detail": "Not Found"}, status=self.models_status)
        return web.json_response({"object": "list", "data": []})

    async def tokenize(self, request: web.Request) -> web.Response:
        if self.trouble == "no tokenize":
            raise web.HTTPNotFound
        self.tokenized.append(await request.json())
        return web.json_response({"tokens": PROMPT_IDS, "count": len(PROMPT_IDS), "max_model_len": 1000})

    async def detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": "".join(WORDS[one] for one in (await request.json())["tokens"])})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.asked_at.append(time.monotonic())
        self.headers = dict(request.headers)
        if self.room is not None and len(body["messages"]) > self.room:
            status, message = self.too_long
            return web.json_response({"error": {"message": message, "code": status}}, status=status)
        match self.trouble:
            case "429":
                return web.json_response(
                    {"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "0.2"}
                )
            case "500" | "400" | "401" as status:
                return web.json_response({"error": {"message": f"a {status}"}}, status=int(status))
            case "500 to chats":
                return web.json_response({"error": {"message": "a 500"}}, status=500)
            case "html":
                return web.Response(text="<html>welcome</html>", content_type="text/html")
            case "silent" if not self.after:
                await asyncio.sleep(3600)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await self._say(body, response, request)
        except (ConnectionError, asyncio.CancelledError):
            self.left += 1
            raise
        return response

    async def _say(self, body: dict[str, Any], response: web.StreamResponse, request: web.Request) -> None:
        if self.echo:
            await self._repeat(body, response)
            return
        first = _words_before(body)
        most = body.get("max_tokens", 20)
        for number in range(most):
            if self.trouble and number == self.after:
                await self._break(response, request)
                return
            await self._wait(number)
            word = WORDS[first + number]
            choice = {"index": 0, "finish_reason": None} | (
                {"text": word} if "prompt" in body else {"delta": {"content": word}}
            )
            if self.tells_ids and body.get("return_token_ids"):
                choice["token_ids"] = [first + number]
            await self._send(response, {"id": "c", "object": "chat.completion.chunk", "choices": [choice]})
        end = (
            {"index": 0, "delta": {}, "finish_reason": "length"}
            if "messages" in body
            else {"index": 0, "text": "", "finish_reason": "length"}
        )
        await self._send(response, {"id": "c", "choices": [end]})
        await self._send(response, {"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": most}})
        await response.write(b"data: [DONE]\n\n")

    async def _wait(self, said: int) -> None:
        await asyncio.sleep(self.pause_s)
        while self.says_most is not None and said >= self.says_most:
            await asyncio.sleep(0.02)

    async def _repeat(self, body: dict[str, Any], response: web.StreamResponse) -> None:
        text = [one["content"] for one in body["messages"] if one["role"] == "user"][-1]
        whole = f"You said {text}. Again: {text}"
        begin = len(body["messages"][-1]["content"]) if body.get("continue_final_message") else 0
        for number, at in enumerate(range(begin, len(whole), 3)):
            await self._wait(number)
            choice = {"index": 0, "finish_reason": None, "delta": {"content": whole[at : at + 3]}}
            await self._send(response, {"id": "c", "object": "chat.completion.chunk", "choices": [choice]})
        await self._send(response, {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        usage = {"prompt_tokens": 7, "completion_tokens": len(whole) // 3}
        await self._send(response, {"id": "c", "choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")

    async def _break(self, response: web.StreamResponse, request: web.Request) -> None:
        match self.trouble:
            case "close":
                assert request.transport is not None
                request.transport.abort()
            case "end":
                await response.write(b"data: [DONE]\n\n")
            case "silent":
                await asyncio.sleep(3600)
            case "rubbish":
                await response.write(b"data: {not json\n\n")
            case "shapes":
                await self._send(response, {"choices": [{"delta": {"content": 7}}]})
            case "no choices":
                await self._send(response, [1, 2])
            case "failed":
                await self._send(response, {"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]})
            case "error":
                await self._send(response, {"error": {"message": "out of memory", "code": 500}})

    async def _send(self, response: web.StreamResponse, content: object) -> None:
        await response.write(b"data: %b\n\n" % json.dumps(content).encode())


def _words_before(body: dict[str, Any]) -> int:
    """How many words the answer has already."""
    if "prompt" in body:
        prompt = body["prompt"]
        return prompt.count("w") if isinstance(prompt, str) else len(prompt) - len(PROMPT_IDS)
    return body["messages"][-1]["content"].count("w") if body.get("continue_final_message") else 0


@contextmanager
def outside_server_in_a_thread() -> Iterator[OutsideServer]:
    """For fixtures that outlive a test's event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    place = outside_server()
    try:
        yield asyncio.run_coroutine_threadsafe(place.__aenter__(), loop).result(60)
        asyncio.run_coroutine_threadsafe(place.__aexit__(None, None, None), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@asynccontextmanager
async def outside_server() -> AsyncIterator[OutsideServer]:
    server = OutsideServer()
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_post("/v1/completions", server.chat)
    app.router.add_post("/tokenize", server.tokenize)
    app.router.add_post("/detokenize", server.detokenize)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()

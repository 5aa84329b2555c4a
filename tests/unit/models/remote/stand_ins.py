"""Servers that cannot be had for tests, written from their documentation: `azure_server` and `triton_server`.

Azure OpenAI, REST API of an `api-version`: https://learn.microsoft.com/azure/ai-services/openai/reference and
https://learn.microsoft.com/azure/ai-services/openai/concepts/content-filter. Triton's OpenAI frontend:
https://github.com/triton-inference-server/server/tree/main/python/openai.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

KEY = "a-key"
VERSION = "2024-10-21"
DEPLOYMENT = "a-deployment"
SAFE = {name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")}


@dataclass
class StandIn:
    """`filters`: the part of an answer that its content filter refuses, `prompt` or `answer`."""

    url: str = ""
    filters: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def refuse(self, why: str) -> web.Response:
        self.refused.append(why)
        return web.json_response({"error": {"code": "401", "message": why}}, status=401)


class Azure(StandIn):
    async def models(self, request: web.Request) -> web.Response:
        return self._stranger(request) or web.json_response({"object": "list", "data": []})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._stranger(request):
            return refusal
        body = await request.json()
        self.bodies.append(body)
        if "max_tokens" in body:
            message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return web.json_response({"error": {"message": message, "code": "unsupported_parameter"}}, status=400)
        if self.filters == "prompt":
            inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": SAFE}
            error = {"message": "The response was filtered", "param": "prompt", "code": "content_filter", "status": 400}
            return web.json_response({"error": {**error, "innererror": inner}}, status=400)
        annotated = {"index": 0, "finish_reason": None, "content_filter_results": SAFE}
        chunks: list[dict[str, Any]] = [
            {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": SAFE}]},
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
        ]
        words = ["w0 ", "w1 ", "w2 "]
        most = body.get("max_completion_tokens", 3)
        chunks += [{"choices": [{**annotated, "delta": {"content": word}}]} for word in words[:most]]
        reason = "content_filter" if self.filters == "answer" else "stop"
        offsets = {"check_offset": 44, "start_offset": 44, "end_offset": 198}
        chunks += [
            {"choices": [{**annotated, "content_filter_offsets": offsets}]},  # has no delta
            {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}},
        ]
        return await _stream(request, chunks)

    def _stranger(self, request: web.Request) -> web.Response | None:
        if request.headers.get("api-key") != KEY:
            return self.refuse("Access denied due to invalid subscription key")
        if request.query.get("api-version") != VERSION:
            return self.refuse("API version not supported")
        return None


class Triton(StandIn):
    """Says `stop` at the end of each answer, and `{"detail": ...}` with 400 of whatever goes wrong."""

    async def models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": DEPLOYMENT, "object": "model"}]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        if body["model"] != DEPLOYMENT:
            return web.json_response({"detail": f"Unknown model: {body['model']}"}, status=400)
        if body.get("logit_bias") is not None:
            return web.json_response({"detail": "logit bias is not currently supported"}, status=400)
        most = min(3, body.get("max_tokens", 3))
        chunks = [_triton_chunk({"role": "assistant", "content": ""}, None)]
        chunks += [_triton_chunk({"content": f"w{number} "}, None) for number in range(most)]
        chunks.append(_triton_chunk({"content": ""}, "stop"))
        if (body.get("stream_options") or {}).get("include_usage"):
            chunks.append({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": most}})
        return await _stream(request, chunks)


def _triton_chunk(delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}


async def _stream(request: web.Request, chunks: list[dict[str, Any]]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for chunk in chunks:
        whole = {"id": "", "object": "chat.completion.chunk", "created": 0, "model": "", **chunk}
        await response.write(b"data: %b\n\n" % json.dumps(whole).encode())
    await response.write(b"data: [DONE]\n\n")
    return response


@asynccontextmanager
async def azure_server() -> AsyncIterator[Azure]:
    """`url` is that of a resource."""
    server = Azure()
    chat = f"/openai/deployments/{DEPLOYMENT}/chat/completions"
    async with _serving(web.post(chat, server.chat), web.get("/openai/models", server.models)) as server.url:
        yield server


@asynccontextmanager
async def triton_server() -> AsyncIterator[Triton]:
    server = Triton()
    routes = web.post("/v1/chat/completions", server.chat), web.get("/v1/models", server.models)
    async with _serving(*routes) as address:
        server.url = f"{address}/v1"
        yield server


@asynccontextmanager
async def _serving(*routes: web.RouteDef) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()

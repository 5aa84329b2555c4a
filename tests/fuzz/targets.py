"""What rubbish is sent to: heads and bodies, WebSocket frames, records of Kafka."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec
import websockets
from aiokafka import AIOKafkaProducer

from app.settings import Settings
from app.wire.codec import encode
from app.wire.control import Cancel, Erase
from app.wire.ids import partition_for
from app.wire.request import Request
from app.wire.tool_records import ToolResultRecord
from tests.fuzz.mutation import mutated

PATIENCE_S = 30.0
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ASK = {"prompt": "Hi", "max_tokens": 2, "stop": ["x"], "metadata": {"a": [1, {"b": None}]}, "temperature": 0.5,
       "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}, "logit_bias": {"3": 1.0},
       "conversation_id": "c", "priority": "batch", "seed": 7, "deadline_ms": 5000}  # fmt: skip
CHAT = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]}],
        "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}, "n": 2}  # fmt: skip

TOOL = {"name": "f", "parameters": SCHEMA}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = [{"role": "user", "content": "u"}, {"role": "assistant", "tool_calls": [CALL]},
          {"role": "tool", "tool_call_id": "c1", "content": "r"}]  # fmt: skip
TOOLS = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "auto", "parallel_tool_calls": False}
BODIES = (
    ("/v1/requests", ASK),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {"messages": CALLED, "max_tokens": 2, "min_tokens": 1, **TOOLS}),
    ("/v1/chat/completions", {"messages": CALLED[:1], "max_tokens": 2, "structured_outputs": {"json": SCHEMA}}),
    ("/v1/chat/completions", {"messages": CALLED[:1], "max_tokens": 2, "guided_grammar": 'root ::= "a" | [0-9]'}),
    ("/v1/chat/completions", {"messages": CALLED[:1], "max_tokens": 3, "best_of": 3, "logprobs": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Mail nina@example.com, K 4111 1111 1111 1111"}],
                              "max_tokens": 4, "temperature": 0}),
    ("/v1/chat/completions", {"messages": CALLED, "max_tokens": 3, "tool_mode": "kafka", **TOOLS}),
    ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2, "echo": True, "n": 2}),
    ("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2, "logprobs": 1, "stream": True}),
    ("/v1/responses", {"input": "u", "max_output_tokens": 2, "stream": True, "tools": [{"type": "function", **TOOL}]}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "u"}]},
                                 {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "c", "output": "r"}],
                       "max_output_tokens": 2, "previous_response_id": "resp_a.b"}),
)  # fmt: skip


def _head(line: str, *headers: str, body: str = "") -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: 127.0.0.1", *headers, "", body)).encode()


CODECS = (None, "gzip", "snappy", "lz4", "zstd")
CLOSE = "Connection: close"
WEBSOCKET = ("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
HEADS = (
    _head("GET /v1/me?user_id=nina", "Last-Event-ID: 12", CLOSE),
    _head("GET /v1/requests/0197-a/events?starting_after=3", CLOSE),
    _head("GET /v1/search?q=x&limit=3&since=1", "traceparent: 00-1-1-01", CLOSE),
    _head("POST /v1/requests", "Content-Type: application/json", "Content-Length: 15", CLOSE, body='{"prompt": "x"}'),
    _head("GET /v1/ws", "Connection: Upgrade", *WEBSOCKET),
    _head("DELETE /v1/users/mallory", CLOSE),
    _head("GET /v1/conversations/a%2Fb", CLOSE),
)
MESSAGES = (
    {"type": "ask", "ref": "1", **ASK},
    {"type": "follow", "request_id": "0197", "starting_after": 12},
    {"type": "unfollow", "request_id": "0197"},
    {"type": "cancel", "request_id": "0197"},
)


class Targets:
    """Each target is sent one piece of rubbish by a call, and counts what came back in `replies`."""

    def __init__(self, url: str, settings: Settings, seed: int) -> None:
        self.replies: Counter[str] = Counter()
        self._url = url
        self._port = int(url.rpartition(":")[2])
        self._settings = settings
        self._random = random.Random(seed)
        self._http = httpx.AsyncClient(base_url=url, timeout=PATIENCE_S)
        self._producers: list[AIOKafkaProducer] = []

    async def start(self) -> None:
        options: dict[str, Any] = self._settings.cluster.options()
        for codec in CODECS:
            self._producers.append(AIOKafkaProducer(**options, compression_type=codec))
            await self._producers[-1].start()

    async def stop(self) -> None:
        await self._http.aclose()
        for producer in self._producers:
            await producer.stop()

    @property
    def all(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return self.head, self.body, self.frames, self.record, self.record, self.record

    async def head(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(mutated(self._random.choice(HEADS), self._random))
            writer.write_eof()
            async with asyncio.timeout(2):  # some wait for a body, or stay open
                reply = await reader.read(64)
            self._count("head", int(reply.split(b" ")[1]) if reply.startswith(b"HTTP/") else 0)
        except (OSError, TimeoutError):
            self.replies["head: nothing"] += 1
        finally:
            writer.close()

    async def body(self) -> None:
        path, good = self._random.choice(BODIES)
        body = mutated(json.dumps(good).encode(), self._random)
        reply = await self._http.post(path, content=body, headers={"content-type": "application/json"})
        self._count("body", reply.status_code)

    async def frames(self) -> None:
        url = self._url.replace("http", "ws") + "/v1/ws"
        code = 0
        try:
            async with websockets.connect(url, open_timeout=PATIENCE_S, close_timeout=2) as socket:
                for _ in range(5):
                    frame = mutated(json.dumps(self._random.choice(MESSAGES)).encode(), self._random)
                    as_text = self._random.random() < 0.8
                    await socket.send(frame.decode("utf-8", "replace") if as_text else frame)
                async with asyncio.timeout(0.5):
                    async for _ in socket:
                        pass
        except websockets.ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else 0
        except TimeoutError:
            pass
        self.replies[f"frames: {code}"] += 1
        if code == 1011:
            raise AssertionError("a WebSocket ended with 1011: the gateway failed")

    async def record(self) -> None:
        user, request_id = f"fuzz{self._random.randrange(20)}", uuid.UUID(int=self._random.getrandbits(128)).hex
        request = Request(request_id=request_id, user_id=user, prompt="Hi", max_tokens=2, metadata={"a": [1]})
        called = {**TOOLS, "messages": CALLED, "request_id": request_id, "user_id": user, "max_tokens": 2}
        topic, record = self._random.choice(
            (
                ("requests", request),
                ("requests", msgspec.convert(called, Request)),
                ("controls", Cancel(request_id=request_id, user_id=user)),
                ("controls", Erase(user_id=user)),
                ("tool-results", ToolResultRecord(tool_call_id="c", request_id=request_id, user_id=user, content="r")),
            )
        )
        value, headers = encode(record, self._random.choice(("json", "protobuf")))
        key: Any = self._random.choice((user.encode(), user.encode(), user.encode(), b"", None, b"\xff"))
        headers += self._random.choice(([], [("traceparent", b"\xff")], [("forwarded-from", b"x")], [("x", None)]))
        await self._random.choice(self._producers).send_and_wait(
            self._settings.topic(topic),
            mutated(value, self._random) if self._random.random() < 0.9 else value,
            key=key,
            headers=headers,
            partition=partition_for(user, self._settings.partitions),
        )
        self.replies[f"record: {topic}"] += 1

    def _count(self, what: str, status: int) -> None:
        self.replies[f"{what}: {status}"] += 1
        if status == 500:
            raise AssertionError(f"{what}: the gateway failed with 500")

"""The verdict on results of calls that come back as later records (`tool_results`), and those records.

A request ends in a call of a tool that its sender runs; a later record of the same conversation has the result. It may
be sent before the call is made: the requests of a conversation are answered in order. What the model reads is judged
with all texts (tests/faults/texts_verdict.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from app.delivery.resume.answer_log import call_id
from app.wire.codec import decode
from app.wire.event import TokenEvent
from app.wire.turn import Turn
from models.interface.generation import FinishReason
from tests.faults.records import Key
from tests.simulation.broker import Entry
from tests.simulation.erasures import Erasures

NO_CALL = "call_of_nobody"


def following(user: str, number: int, *, is_known: bool) -> tuple[dict[str, object], dict[str, object]]:
    """The record with the result of the call of request `number`, and a request behind it."""
    about = {"user_id": user, "conversation_id": f"t{number}"}
    call = call_id(user, f"r{number}", 0) if is_known else NO_CALL
    result = {"tool_call_id": call, "content": f"result {number}"}
    back = {**about, "request_id": f"b{number}", "tool_results": [result], "max_tokens": 3}
    return back, {**about, "request_id": f"f{number}", "prompt": "and then?", "max_tokens": 2}


def wrong_results(
    requests: Iterable[Entry], events: Iterable[Entry], turns: Mapping[Key, Turn], erasures: Erasures
) -> Iterator[str]:
    """Results of calls that were made are answered, others are refused, and a turn with results keeps its question."""
    ends = {}
    for entry in events:
        event = decode(TokenEvent, entry.value, entry.headers)
        if event.is_end:
            ends.setdefault((event.user_id or "", event.request_id or ""), event)
    for entry in requests:
        request = json.loads(entry.value or b"")
        key = (request["user_id"], request["request_id"])
        if not request.get("tool_results") or key not in ends or erasures.touch_request(key):
            continue
        asked = turns.get((key[0], f"r{request['request_id'][1:]}"))
        calls = {call.id for call in (asked.tool_calls or ())} if asked is not None else set()
        is_known = asked is not None and asked.finish_reason is FinishReason.TOOL_CALLS
        is_known = is_known and request["tool_results"][0]["tool_call_id"] in calls
        is_refused = ends[key].error is not None
        if is_known == is_refused:
            yield f"{key} {'has a call and is refused' if is_known else 'has no call and is answered'}"
        if is_known and key in turns and turns[key].prompt != (asked.prompt if asked is not None else ""):
            yield f"the turn of {key} has another question"

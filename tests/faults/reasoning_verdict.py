"""Whether an answer has its reasoning apart from its text, where the paced engine has it."""

from __future__ import annotations

from app.reader import Answer
from models.served.paced import text_of
from tables.tool_calls import BREAK


def is_split(request: dict, answer: Answer) -> bool:
    """Each event has the words of its tokens; of an answer of one round and one model, the first half is reasoning."""
    for event in answer.segments:
        words = "".join(map(text_of, event.tokens or ()))
        if ((event.reasoning or "") + (event.text or "")).replace(BREAK, "") != words:
            return False
    if not request.get("reasoning_effort"):
        return not answer.reasoning
    is_plain = request.get("tool_mode") != "kafka" and len({event.model_version for event in answer.segments}) == 1
    if not is_plain or answer.missing:
        return True
    most = request["max_tokens"] if not request.get("tools") else (request["max_tokens"] + 1) // 2
    return answer.reasoning.count(" w") == min(len(answer.tokens), most // 2)

"""From a request and what it sees to the messages of its prompt. Pure functions without I/O."""

from __future__ import annotations

from dataclasses import dataclass

from app.delivery.accepted import Accepted
from app.private.mask import NO_MASK, Mask
from app.wire.event import Plan, RecalledTurn
from app.wire.json_codec import json_bytes
from app.wire.request import Message, Request, Role
from models.interface.chat import ChatMessage, ModelCall, PastTurn
from tables.conversations import MemoryRules
from tables.records import Conversation, KeptTurn, encode
from tables.tool_calls import NO_ROUNDS, ToolRounds


@dataclass(frozen=True, slots=True)
class Dialogue:
    """What a model gets to read.

    memory: The turns of its conversation that the request sees.
    recalled: Related older turns, before those.
    rounds: The calls that the answer has made, and their results.
    written: The beginning of this round that another model has written.
    mask: Hides the private values in all of it.
    """

    request: Request
    memory: tuple[KeptTurn, ...] = ()
    recalled: tuple[RecalledTurn, ...] = ()
    rounds: ToolRounds = NO_ROUNDS
    written: str = ""
    mask: Mask = NO_MASK


def memory_of(accepted: Accepted, conversation: Conversation, rules: MemoryRules) -> tuple[KeptTurn, ...]:
    """The turns that the request sees; one that brings its whole context sees none."""
    request = accepted.request
    if not request.sees_conversation:
        return ()
    return rules.visible(conversation, accepted.at, request.previous_request_id)


class DialogueError(ValueError):
    """The request does not fit its conversation; one line for its sender."""


def check_dialogue(request: Request, memory: tuple[KeptTurn, ...]) -> None:
    """Raise `DialogueError` unless the memory has what the request refers to."""
    if request.previous_request_id is not None and not memory:
        raise DialogueError(
            f"previous_request_id: conversation {request.conversation_id} has no turn of {request.previous_request_id}"
        )
    if request.fork is not None and _continues(request) and not memory:
        raise DialogueError("from: the conversation has lost its copy; begin another one")
    if request.tool_results is None:
        return
    calls = memory[-1].open_calls if memory else frozenset()
    unknown = [one.tool_call_id for one in request.tool_results if one.tool_call_id not in calls]
    if unknown:
        raise DialogueError(f"tool_results: the last turn of the conversation has no open call {unknown[0]}")


def _continues(request: Request) -> bool:
    """Whether it belongs to the last turn that it sees: by results of its calls, or as its question asked again."""
    return request.tool_results is not None or (request.fork is not None and request.prompt is None)


def question_of(request: Request, memory: tuple[KeptTurn, ...]) -> str:
    """What the user says in this turn; results of calls belong to the turn that asked for them."""
    if _continues(request):
        return memory[-1].prompt if memory else ""
    return request.question


def past_turns_of(request: Request, memory: tuple[KeptTurn, ...]) -> list[PastTurn]:
    """The turns before this one."""
    past = memory[:-1] if _continues(request) else memory
    return [PastTurn(turn.prompt, turn.answer, turn.steps, turn.before) for turn in past]


def steps_of(request: Request, memory: tuple[KeptTurn, ...]) -> tuple[ChatMessage, ...]:
    """The messages between what the user says and the answer."""
    if _continues(request):
        before = memory[-1].steps if memory else ()
        given = request.tool_results or ()
        results = (ChatMessage("tool", one.content, call_id=one.tool_call_id) for one in given)
        return (*before, *results)
    messages = request.messages or ()
    last = _last_of_user(messages)
    # Without a message of the user, the context before the answer belongs to no turn, unless it continues one.
    following = messages[last + 1 :] if last >= 0 or request.keep_context else ()
    if request.continue_final_message:
        following = following[:-1]
    return tuple(chat_message(message) for message in following if message.role is not Role.SYSTEM)


def messages_of(
    request: Request, memory: tuple[KeptTurn, ...], rounds: tuple[ChatMessage, ...]
) -> list[ChatMessage] | None:
    """The messages behind the turns before this one, with these rounds; None if the prompt is all of them."""
    if request.messages is not None:
        return [*map(chat_message, request.messages), *rounds]
    before = before_of(request, memory)
    question = ChatMessage(Role.USER, question_of(request, memory))
    return [*before, question, *steps_of(request, memory), *rounds] if before else None


def before_of(request: Request, memory: tuple[KeptTurn, ...] = ()) -> tuple[ChatMessage, ...]:
    """The messages before what the user says, if the conversation is to remember them.

    Instructions are not remembered: each request brings its own.
    """
    if request.fork is not None and _continues(request) and memory:
        return memory[-1].before
    if not request.keep_context or request.messages is None:
        return ()
    earlier = request.messages[: max(0, _last_of_user(request.messages))]
    return tuple(chat_message(message) for message in earlier if message.role is not Role.SYSTEM)


def _last_of_user(messages: tuple[Message, ...]) -> int:
    return max((index for index, message in enumerate(messages) if message.role is Role.USER), default=-1)


def beginning_of(request: Request) -> str:
    """The text of the answer that the request brings along."""
    last = request.messages[-1] if request.continue_final_message and request.messages else None
    return "" if last is None else last.text


def chat_message(message: Message) -> ChatMessage:
    return ChatMessage(
        message.role,
        message.text,
        calls=tuple(call.call for call in message.tool_calls or ()),
        call_id=message.tool_call_id or "",
        name=message.name or "",
        reasoning=message.reasoning_content or "",
    )


def ended_in(steps: tuple[ChatMessage, ...], text: str, calls: tuple[ModelCall, ...]) -> tuple[ChatMessage, ...]:
    """The steps of a turn whose answer is `text` and these calls."""
    return (*steps, ChatMessage("assistant", text, calls=calls)) if calls else steps


def kept_bytes(accepted: Accepted, memory: tuple[KeptTurn, ...], plan: Plan) -> int:
    """Bytes, as JSON, of what its turn will keep beside the answer: on `turns`, or in its conversation."""
    request = accepted.request
    size = json_bytes(question_of(request, memory)) + len(encode(plan.private or ()))
    if request.store and not request.is_raw:
        size += len(encode((steps_of(request, memory), before_of(request))))
    return size

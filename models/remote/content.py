"""What a server is asked: the messages of a job, or its raw prompt; and how the server's tokenizer reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from models.remote.http import ServerMisbehaved
from models.remote.parameters import ParameterError

_FEWEST_TURNS = 2
"""Of which one can be left out."""


@dataclass(frozen=True, slots=True)
class Content:
    """`messages`, or a raw `prompt`. `continues`: the answer goes on with the last message."""

    messages: list[dict[str, Any]]
    prompt: str | None
    continues: bool

    @classmethod
    def of(cls, prompt: Sequence[int], begun: str) -> Self:
        """Of a job's prompt (prompts.py) and the text that the answer begins with."""
        given = json.loads(bytes(prompt))
        if "prompt" in given:
            return cls([], given["prompt"] + begun, continues=False)
        messages, continues = list(given["messages"]), bool(given.get("continues", False))
        if begun:
            before = messages.pop()["content"] if continues else ""
            messages.append({"role": "assistant", "content": before + begun})
        return cls(messages, None, continues=continues or bool(begun))

    def shortened(self, times: int) -> Self | None:
        """Without the older half of the turns, so many times over; None if only the last turn is left before that.

        A turn begins with a user's message. What precedes the first one, the instructions, stays.
        """
        begins = [number for number, one in enumerate(self.messages) if one["role"] == "user"]
        kept = begins
        for _ in range(times):
            if len(kept) < _FEWEST_TURNS:
                return None
            kept = kept[(len(kept) + 1) // 2 :]
        return replace(self, messages=self.messages[: begins[0]] + self.messages[kept[0] :]) if times else self


@dataclass(frozen=True, slots=True)
class PromptIds:
    """A prompt in the server's tokens, and how many more fit into its context."""

    tokens: list[int]
    room: int


async def ids_of(client: Any, model: str, content: Content) -> PromptIds:
    """As vLLM renders it for a completion: `/tokenize`. Raises what the client raises, and `ServerMisbehaved`."""
    body: dict[str, Any] = {"model": model}
    if content.prompt is not None:
        body["prompt"] = content.prompt
    else:
        body |= {"messages": content.messages, "add_generation_prompt": not content.continues}
        body["continue_final_message"] = content.continues
    given = await _post(client, "tokenize", body)
    tokens, longest = given.get("tokens"), given.get("max_model_len")
    if not isinstance(tokens, list) or not all(isinstance(one, int) for one in tokens) or not isinstance(longest, int):
        raise ServerMisbehaved("the server tells no tokens of the prompt")
    return PromptIds(tokens, longest - len(tokens))


async def text_of_ids(client: Any, model: str, ids: Sequence[int]) -> str:
    """What they say; half a character at the end is left out."""
    given = await _post(client, "detokenize", {"model": model, "tokens": list(ids)})
    text = given.get("prompt")
    if not isinstance(text, str):
        raise ServerMisbehaved("the server tells no text of the tokens")
    return text.rstrip("\ufffd")


async def _post(client: Any, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """They are beside OpenAI's API, not below it. Raises `ParameterError` if something between hides them."""
    import openai

    root = str(client.base_url).rstrip("/").removesuffix("/v1")
    try:
        given = await client.post(f"{root}/{path}", cast_to=object, body=body)
    except openai.NotFoundError:
        raise ParameterError(f"the model's server has no /{path}") from None
    if not isinstance(given, dict):
        raise ServerMisbehaved("the server's reply is no object")
    return given

"""The categories of an outside server with OpenAI's moderation API: `POST /moderations`.

A category that the server flags scores 1, because servers have thresholds of their own; others have the server's score.
"""

from __future__ import annotations

import os
from collections.abc import ItemsView, Mapping, Sequence
from typing import Any

import msgspec
from parley_client.plugins import Judge, NoVerdict, turn

from app.policy.guard_rules import ModerationServer
from models.remote.http import client_of


class EndpointJudge(Judge):
    """Its settings are the `server`, `timeout_s`, and the `categories` that it is asked for. Raises `NoVerdict` if the
    package `openai` or the key is missing.
    """

    threshold = 1.0
    blocks = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        server, timeout_s = msgspec.convert(settings["server"], ModerationServer), settings["timeout_s"]
        self.categories = tuple(settings["categories"])
        try:
            import openai  # an extra
        except ImportError:
            raise NoVerdict("moderation needs the package openai: install Parley with its extra `outside`") from None
        key = os.environ.get(server.api_key_env or "", "")
        if server.api_key_env and not key:
            raise NoVerdict(f"moderation: the environment has no {server.api_key_env}")
        self._error = openai.OpenAIError
        self._model = server.model
        self._client = openai.AsyncOpenAI(
            base_url=server.url,
            api_key=key or "none",
            timeout=timeout_s,
            max_retries=1,
            http_client=client_of(timeout=timeout_s),
        )

    async def scores(self, texts: Sequence[str]) -> list[Mapping[str, float]]:
        try:
            async with turn():
                answer = await self._client.moderations.create(input=list(texts), model=self._model)
            results: list[Mapping[str, float]] = [_scores(result.to_dict(warnings=False)) for result in answer.results]
        except self._error as error:
            status = getattr(error, "status_code", None)
            raise NoVerdict(f"moderation: {f'status {status}' if status else type(error).__name__}") from None
        except (AttributeError, TypeError, ValueError):
            raise NoVerdict("moderation: the server's response is not that of OpenAI's moderation API") from None
        if len(results) != len(texts):
            raise NoVerdict(f"moderation: {len(results)} results for {len(texts)} texts")
        return results

    async def close(self) -> None:
        await self._client.close()


def _scores(result: Mapping[str, object]) -> dict[str, float]:
    scores = {str(name): float(score) for name, score in _items(result, "category_scores")}
    return scores | {str(name): 1.0 for name, flag in _items(result, "categories") if flag is True}


def _items(result: Mapping[str, object], name: str) -> ItemsView[str, float]:
    value = result.get(name, {})
    if not isinstance(value, Mapping):
        raise TypeError(name)
    return value.items()

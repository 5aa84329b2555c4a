"""Ask another arm of an experiment the same question, unseen by the user: `shadow` of a route.

1. An answer of an experiment is committed; the shadow adds nothing to its latency.
2. By the hash of its request id, the share `shadow` of these requests is chosen. Another arm's model gets the same
   prompt, at the lowest priority.
3. When it has answered, the figures of both go to `comparisons`. Text is never written.

A shadow is dropped if its partition leaves this worker, and none begins while `MOST_SHADOWS` are under way.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from functools import partial

from agents.dialogue import DialogueError, beginning_of
from agents.jobs import UnsupportedError, job_of, prompt_of
from agents.off_loop import off_loop
from app.delivery.batches import Batches
from app.delivery.commits.commit import Commit, LostError
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition
from app.delivery.record import Outgoing
from app.policy.shadows import Shadows
from app.prices import PriceList
from app.settings import Settings
from app.wire.codec import encode
from app.wire.comparison import Comparison
from app.wire.event import TokenEvent
from models.generation import ConstraintError, Delta, End, Failure, FinishReason, Priority
from models.private.addresses import Addresses
from models.prompts import PromptError, PromptTooLong
from models.registry import ModelRegistry, ServedModel
from models.rouge import rouge_l
from models.unexpected import type_and_place

log = logging.getLogger(__name__)

MOST_SHADOWS = 8
_COMPARED = frozenset({FinishReason.STOP, FinishReason.LENGTH})


@dataclasses.dataclass(frozen=True, slots=True)
class _Shadow:
    """The answer of the other arm. Times are in milliseconds."""

    text: str = ""
    prompt_tokens: int = 0
    tokens: int = 0
    first_token_ms: int | None = None
    duration_ms: int = 0
    cost: float = 0.0
    error: str | None = None


class Comparing:
    def __init__(
        self, settings: Settings, servings: ModelRegistry, batches: Batches, shadows: Shadows, prices: PriceList
    ) -> None:
        self._settings = settings
        self._servings = servings
        self._batches = batches
        self._shadows = shadows
        self._prices = prices
        self._running = 0

    def begin(self, partition: Partition, inflight: InFlightRequest, end: TokenEvent) -> None:
        """Ask the other arm if the committed answer is chosen for a comparison."""
        plan, request = inflight.plan, inflight.request
        is_whole = end.finish_reason in _COMPARED and not inflight.forget and plan.cached is None
        is_plain = not request.tools and (request.best_of or 1) == 1
        if not is_whole or not is_plain or inflight.answer is None or self._running >= MOST_SHADOWS:
            return
        arm = self._shadows.arm_for(plan, request.request_id)
        serving = None if arm is None else self._servings.find(arm)
        if arm is not None and serving is not None:
            self._running += 1
            task = partition.spawn(self._compare(partition, inflight, inflight.answer.text, arm, serving))
            task.add_done_callback(self._left)  # also of one that never began

    def _left(self, _task: asyncio.Task[None]) -> None:
        self._running -= 1

    async def _compare(
        self, partition: Partition, inflight: InFlightRequest, answer: str, arm: str, serving: ServedModel
    ) -> None:
        try:
            shadow = await self._ask(partition, inflight, serving)
            tokens = inflight.answer.index if inflight.answer is not None else 0
            record = Comparison(
                request_id=inflight.request.request_id,
                experiment=inflight.plan.experiment or "",
                arm=inflight.plan.arm or "",
                shadow_arm=arm,
                shadow_model=serving.model_version,
                created_at=partition.ownership.clock.now(),
                tenant=inflight.request.tenant,
                is_same=shadow.error is None and shadow.text.strip() == answer.strip(),
                rouge_l=0.0 if shadow.error is not None else rouge_l(answer, shadow.text),
                tokens=tokens,
                shadow_tokens=shadow.tokens,
                shadow_prompt_tokens=shadow.prompt_tokens,
                shadow_first_token_ms=shadow.first_token_ms,
                shadow_duration_ms=shadow.duration_ms,
                shadow_cost=shadow.cost,
                error=shadow.error,
            )
            value, headers = encode(record, self._settings.wire_format)
            topic = self._settings.topic("comparisons")
            await partition.commit(Commit(None, (), (Outgoing(topic, arm.encode(), value, headers),)))
        except LostError:
            log.debug("the comparison of request %s is dropped: its partition has left", inflight.key)

    async def _ask(self, partition: Partition, inflight: InFlightRequest, serving: ServedModel) -> _Shadow:
        began = time.monotonic()
        first: float | None = None
        asked = InFlightRequest(
            inflight.record,
            inflight.request,
            inflight.at,
            plan=inflight.plan,
            memory=inflight.memory,
            mask=inflight.mask,
        )
        texts: list[str] = []
        try:
            prompt = await prompt_of(asked, asked.memory, serving, self._settings)
            job = job_of(asked, prompt, serving, self._settings)
            job = dataclasses.replace(job, id=f"{job.id}#shadow", priority=Priority.BATCH)
            async with self._batches.stream(partition.number, serving.engine, job, asked) as stream:
                async for event in stream:
                    if isinstance(event, Failure):
                        return _Shadow(error=event.code)
                    if isinstance(event, Delta):
                        first = first or time.monotonic()
                    texts.append(event.text)
                    if isinstance(event, End):
                        text = "".join(texts)
                        return _Shadow(
                            text=await off_loop(len(text), partial(_shown, asked, text)),
                            prompt_tokens=event.usage.prompt_tokens,
                            tokens=event.usage.completion_tokens,
                            first_token_ms=None if first is None else round(1000 * (first - began)),
                            duration_ms=round(1000 * (time.monotonic() - began)),
                            cost=self._prices.cost(serving.model_version, event.usage, is_cached=False),
                        )
        except (PromptTooLong, PromptError, UnsupportedError, DialogueError, ConstraintError) as error:
            return _Shadow(error=type(error).__name__)
        except LostError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about an answer that nobody waits for
            log.warning("the shadow of request %s failed: %s", inflight.key, type_and_place(error))
        return _Shadow(error="engine_error")


def _shown(asked: InFlightRequest, text: str) -> str:
    """As readers would have it."""
    return asked.mask.shown(text, Addresses(beginning_of(asked.request), in_json=asked.request.wants_json))

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
import hashlib
import logging
import time
from functools import partial

from app.answering.dialogue import Dialogue, DialogueError, beginning_of
from app.answering.job import UnsupportedError, job_of, prompt_of
from app.answering.off_loop import off_loop
from app.answering.run import Run
from app.answering.stage import Feature, Stage
from app.delivery.commits.commit import Commit, LostError
from app.delivery.inflight import InFlight, Outcome
from app.delivery.record import outgoing
from app.policy.file import Policy, Route
from app.prices import PriceList
from app.private.addresses import Addresses
from app.settings import Settings
from app.wire.comparison import Comparison
from app.wire.event import Plan
from app.wire.request import Request
from models.interface.generation import ConstraintError, Delta, End, Failure, FinishReason, JobPriority
from models.interface.unexpected import type_and_line
from models.prompts.builder import PromptError, PromptTooLong
from models.quantization.rouge import rouge_l
from models.served.registry import ModelRegistry, ServedModel

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


class Shadows(Feature):
    """Which answers another arm is asked for, and how many such questions are under way.

    The choice depends on the request id alone, so an answer that is resumed elsewhere gets the same.
    """

    def __init__(self, settings: Settings, models: ModelRegistry, prices: PriceList, policy: Policy) -> None:
        self.settings, self.models, self.prices = settings, models, prices
        self.running = 0
        self._routes: dict[str, Route] = {}
        self.use(policy)

    def use(self, policy: Policy) -> None:
        self._routes = {route.name: route for route in policy.routes if route.shadow}

    def stage(self, run: Run) -> Stage | None:
        return Shadowed(run, self) if self._routes else None

    def arm_for(self, plan: Plan, request_id: str) -> str | None:
        """The other arm to ask; None if the request is not chosen, or if no arm of the plan has answered."""
        route = self._routes.get(plan.route or "")
        if route is None or plan.experiment != route.experiment or plan.model != plan.arm:
            return None
        others = sorted(model for model in route.models if model != plan.arm)
        digest = hashlib.blake2b(f"{route.experiment}\0{request_id}".encode(), digest_size=16).digest()
        if not others or int.from_bytes(digest[:8]) >= route.shadow * 2**64:
            return None
        return others[int.from_bytes(digest[8:]) % len(others)]


class Shadowed(Stage):
    def __init__(self, run: Run, shadows: Shadows) -> None:
        super().__init__(run)
        self._shadows = shadows

    def committed(self, outcome: Outcome) -> None:
        """Ask the other arm if the committed answer is chosen for a comparison."""
        run, shadows, request, plan = self.run, self._shadows, self.run.accepted.request, outcome.answer.plan
        is_kept = not run.forgets and plan.cached is None
        is_plain = not request.tools and (request.best_of or 1) == 1
        is_compared = outcome.end.finish_reason in _COMPARED and is_kept and is_plain
        if not is_compared or shadows.running >= MOST_SHADOWS:
            return
        arm = shadows.arm_for(plan, request.request_id)
        model = None if arm is None else shadows.models.find(arm)
        if arm is not None and model is not None:
            shadows.running += 1
            task = run.partition.spawn(self._compare(arm, model))
            task.add_done_callback(self._left)  # also of one that never began

    def _left(self, _task: asyncio.Task[None]) -> None:
        self._shadows.running -= 1

    async def _compare(self, arm: str, model: ServedModel) -> None:
        run, request, settings = self.run, self.run.accepted.request, self._shadows.settings
        answer, plan = run.answer.text, run.answer.plan
        try:
            shadow = await self._ask(model)
            record = Comparison(
                request_id=request.request_id,
                experiment=plan.experiment or "",
                arm=plan.arm or "",
                shadow_arm=arm,
                shadow_model=model.model_version,
                created_at=run.partition.ownership.clock.now(),
                tenant=request.tenant,
                is_same=shadow.error is None and shadow.text.strip() == answer.strip(),
                rouge_l=0.0 if shadow.error is not None else rouge_l(answer, shadow.text),
                tokens=run.answer.index,
                shadow_tokens=shadow.tokens,
                shadow_prompt_tokens=shadow.prompt_tokens,
                shadow_first_token_ms=shadow.first_token_ms,
                shadow_duration_ms=shadow.duration_ms,
                shadow_cost=shadow.cost,
                error=shadow.error,
            )
            output = outgoing(settings, "comparisons", arm.encode(), record)
            await run.partition.commit(Commit(None, (), (output,)))
        except LostError:
            log.debug("the comparison of request %s is dropped: its partition has left", run.key)

    async def _ask(self, model: ServedModel) -> _Shadow:
        run, settings, prices = self.run, self._shadows.settings, self._shadows.prices
        began = time.monotonic()
        first: float | None = None
        texts: list[str] = []
        try:
            recalled = run.answer.plan.recalled or ()
            dialogue = await run.see(Dialogue(run.accepted.request, run.memory, recalled))
            job = job_of(dialogue, await prompt_of(dialogue, model, settings, run.accepted.at), model, settings)
            job = dataclasses.replace(job, id=f"{job.id}#shadow", priority=JobPriority.BATCH)
            asked = InFlight(run.accepted)
            async with run.batches.stream(run.partition.number, model.engine, job, asked) as stream:
                async for event in stream:
                    if isinstance(event, Failure):
                        return _Shadow(error=event.code)
                    if isinstance(event, Delta):
                        first = first or time.monotonic()
                    texts.append(event.text)
                    if isinstance(event, End):
                        text = "".join(texts)
                        return _Shadow(
                            text=await off_loop(len(text), partial(_shown, dialogue, run.accepted.request, text)),
                            prompt_tokens=event.usage.prompt_tokens,
                            tokens=event.usage.completion_tokens,
                            first_token_ms=None if first is None else round(1000 * (first - began)),
                            duration_ms=round(1000 * (time.monotonic() - began)),
                            cost=prices.cost(model.model_version, event.usage, is_cached=False),
                        )
        except (PromptTooLong, PromptError, UnsupportedError, DialogueError, ConstraintError) as error:
            return _Shadow(error=type(error).__name__)
        except LostError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about an answer that no reader waits for
            log.warning("the shadow of request %s failed: %s", run.key, type_and_line(error))
        return _Shadow(error="engine_error")


def _shown(dialogue: Dialogue, request: Request, text: str) -> str:
    """As readers would have it."""
    return dialogue.mask.shown(text, Addresses(beginning_of(request), in_json=request.wants_json))

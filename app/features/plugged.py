"""Features behind the door for plug-ins (parley_client/plugins/features.py): those of other packages, `[plugins.NAME]`,
and some of Parley's own (app/features/own).

0. Admit: before anything else is asked (app/features/admission.py).
1. Decide: all plug-ins are asked at once, once for an answer. What they decide stands in the plan, so it is in the log
   before the first token. If several end the request, the first in the order of the policy's tables has the word.
2. See: each may change what the model reads, in that order, by what stands in the plan alone.
3. Choose: of several answers, the first that can does (app/features/best_of.py).
4. Behind the commit each learns how the answer has ended.

The plan names those that have a part in 1, 2 or 4.

The next owner carries out what the plan says, and asks nobody again: not a plug-in that its policy has beside those of
the plan either. A plug-in of the plan that it does not have ends the answer: as `partial` if readers have tokens,
otherwise with an error that names the plug-in. Answers that an older worker continues, which skips this part of the
plan, end as `partial` at the prompt's digest.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from parley_client import plugins
from parley_client.plugins import (
    MOST_DECISION_BYTES,
    Asked,
    Candidate,
    Decision,
    Kind,
    NoVectors,
    Plugin,
    PluginError,
    Prompt,
    RateLimited,
    Refused,
    Sender,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from app.answering.dialogue import Dialogue
from app.answering.run import Over, RequestRefused, Run
from app.answering.stage import Decide, Ending, Feature, Round, Stage
from app.delivery.accepted import Former
from app.delivery.inflight import Outcome
from app.features.own.tables import tables_of
from app.plugins.known import named
from app.plugins.running import PluginFailedError, PluginRoom
from app.policy.file import NO_POLICY, Policy, PolicyError
from app.wire.error import ErrorCode, shortened
from app.wire.event import Plan
from app.wire.request import Message, Request, Role
from models.embedder import EmbedderError
from models.embedder.embedder import Embeds
from models.interface.generation import FinishReason

_MOST_FIGURES = 32


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """A plug-in with the settings of a policy."""

    settings: Mapping[str, Any]
    feature: plugins.Feature
    room: PluginRoom

    def has(self, *methods: str) -> bool:
        """Whether the plug-in overrides one of these methods; one that overrides none is not called."""
        own, none = type(self.feature), plugins.Feature
        return any(getattr(own, one, getattr(none, one)) is not getattr(none, one) for one in methods)

    def begin(self, lent: plugins.Worker) -> None:
        """Raises `PluginError`."""
        try:
            self.feature.begin(lent)
        except (Exception, SystemExit) as error:
            self.room.fail(error)
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise PluginError(f"the plug-in {self.room.plugin} does not start: {why}; check its settings") from error

    async def admit(self, sender: Sender) -> None:
        """Raises `RequestRefused`."""
        await self._call(partial(self.feature.admit, sender))

    async def decide(self, asked: Asked) -> Decision:
        """Raises `RequestRefused`."""
        if not self.has("decide"):
            return None
        decision = await self._call(partial(self.feature.decide, asked))
        try:
            encoded = msgspec.json.encode(decision)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self.room.fail(error)
            raise self._refusal("decided what no JSON holds") from None
        if len(encoded) > MOST_DECISION_BYTES:
            raise self._refusal(f"decided {len(encoded)} bytes, and may decide {MOST_DECISION_BYTES}")
        return msgspec.json.decode(encoded)  # as the next owner has it

    async def rewrite(self, prompt: Prompt, decision: Decision) -> Prompt:
        """Raises `RequestRefused`."""
        if not self.has("rewrite"):
            return prompt
        rewritten = await self._call(partial(self.feature.rewrite, prompt, decision))
        texts = getattr(rewritten, "prompt", None), getattr(rewritten, "instructions", None)
        if not all(isinstance(one, str) for one in texts):
            raise self._refusal("gave no Prompt for the prompt")
        return rewritten

    async def choose(self, question: str, candidates: Sequence[Candidate], earlier: Sequence[str]) -> int:
        """Raises `RequestRefused`."""
        chosen = await self._call(partial(self.feature.choose, question, candidates, earlier))
        if not isinstance(chosen, int) or not 0 <= chosen < len(candidates):
            raise self._refusal(f"chose none of {len(candidates)} answers")
        return chosen

    async def _call(self, work: Any) -> Any:
        try:
            return await self.room.call(work)
        except Refused as refused:
            code = ErrorCode.RATE_LIMITED if isinstance(refused, RateLimited) else ErrorCode.INVALID_REQUEST
            raise RequestRefused(code, shortened(str(refused))) from None
        except PluginFailedError as failed:
            raise RequestRefused(ErrorCode.ENGINE_ERROR, str(failed)) from None

    def _refusal(self, why: str) -> RequestRefused:
        return RequestRefused(ErrorCode.ENGINE_ERROR, f"the plug-in {self.room.plugin.name} {why}")


@dataclass(frozen=True, slots=True)
class Lent:
    """What plug-ins have of the worker: implements `plugins.Worker`. Without an `embedder` they get no vectors."""

    embedder: Embeds | None = None

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if self.embedder is None:
            raise NoVectors("this worker has no embedder")
        try:
            return await self.embedder.embed(texts, query=True)  # type: ignore[return-value]
        except EmbedderError as error:
            raise NoVectors(str(error)) from None


class PluggedIn(Feature):
    """The plug-ins of the policy among Parley's own. Raises `PolicyError` if one cannot be loaded, or refuses its
    settings. `here` are the region and the group of this deployment.
    """

    def __init__(
        self, policy: Policy = NO_POLICY, embedder: Embeds | None = None, here: Mapping[str, str] | None = None
    ) -> None:
        self._lent, self._here = Lent(embedder), here or {}
        self._all: dict[str, Running] = {}  # and those that the policy has had: answers may have been decided by them
        self.change(self._loaded(policy, {}))

    @property
    def is_on(self) -> bool:
        return bool(self._planned)

    async def prepare(self, policy: Policy) -> PluginChange | None:
        wanted, before = tables_of(policy, self._here), {name: one.settings for name, one in self.on.items()}
        if wanted == before and list(wanted) == list(before):
            return None
        return PluginChange(self, await asyncio.to_thread(self._loaded, policy, self.on))

    def change(self, on: dict[str, Running]) -> None:
        """Work with these from the next answer on."""
        self.on = on
        self._planned = [name for name, one in on.items() if one.has("decide", "rewrite", "answered")]
        self.admitting = [one for one in on.values() if one.has("admit")]
        self.choosing = next(one for one in on.values() if one.has("choose"))
        self._all |= on

    def forget(self, user_id: str) -> None:
        for one in self._all.values():
            if one.has("forget"):
                one.room.begin(partial(one.feature.forget, user_id))

    async def close(self) -> None:
        for one in self._all.values():
            await one.room.close(one.feature.close)

    def stage(self, run: Run) -> Stage | None:
        former, request = run.accepted.former, run.accepted.request
        decided = former.plan.plugins
        if decided is None and (former.has_begun or not self._planned or request.is_raw):
            return None
        names = self._planned if decided is None else decided
        return PluggedStage(run, {name: self._all.get(name) for name in names})

    def figures(self) -> Iterable[tuple[str, PluginRoom, Mapping[str, float]]]:
        """Of each plug-in, with its own."""
        for name, one in self.on.items():
            try:
                own = {str(key): float(value) for key, value in list(one.feature.figures().items())[:_MOST_FIGURES]}
            except Exception as error:  # noqa: BLE001 - of others: a scrape is for all
                one.room.fail(error)
                own = {}
            yield name, one.room, own

    def _loaded(self, policy: Policy, before: Mapping[str, Running]) -> dict[str, Running]:
        """Those of the policy in its order; raises `PolicyError`."""
        running: dict[str, Running] = {}
        for name, settings in tables_of(policy, self._here).items():
            kept = before.get(name)
            if kept is not None and kept.settings == settings:
                running[name] = kept
                continue
            try:
                plugin = named(Kind.FEATURES, name)
                running[name] = self._begun(plugin, settings)
            except PluginError as error:
                raise PolicyError(f"policy: plugins.{name}: {error}") from None
        return running

    def _begun(self, plugin: Plugin, settings: Mapping[str, Any]) -> Running:
        feature = plugin.made(dict(settings))
        one = Running(settings, feature, PluginRoom(plugin, blocks=bool(getattr(feature, "blocks", True))))
        if one.has("begin"):
            one.begin(self._lent)
        return one


@dataclass(frozen=True, slots=True)
class PluginChange:
    """Plug-ins that a policy needs; those that it has beside it are kept."""

    plugged: PluggedIn
    on: dict[str, Running]

    def apply(self) -> None:
        self.plugged.change(self.on)

    async def drop(self) -> None:
        for name, one in self.on.items():
            if self.plugged.on.get(name) is not one:
                await one.room.close(one.feature.close)


class PluggedStage(Stage):
    """`_running`: None for a plug-in that is not here."""

    def __init__(self, run: Run, running: Mapping[str, Running | None]) -> None:
        super().__init__(run)
        self._running = running
        self._question = ""  # as plug-ins may see it

    def is_decided(self, former: Former) -> bool:
        return former.has_begun or former.plan.plugins is not None

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        self._question = (await self.run.see(Dialogue(self.run.accepted.request))).request.question
        decisions = await self.run.unless_stopped(self._decisions())
        return await then(msgspec.structs.replace(plan, plugins=decisions))

    async def _decisions(self) -> dict[str, Decision]:
        asked, here = self._asked(), {name: one for name, one in self._running.items() if one is not None}
        if len(here) == 1:
            return {name: await one.decide(asked) for name, one in here.items()}
        deciding = {name: asyncio.ensure_future(one.decide(asked)) for name, one in here.items()}
        try:
            return {name: await one for name, one in deciding.items()}
        finally:
            for other in deciding.values():  # one has ended the request
                other.cancel()
            await asyncio.gather(*deciding.values(), return_exceptions=True)

    async def round(self, then: Round) -> Ending:
        absent = [name for name, one in self._running.items() if one is None]
        if not absent:
            return await then()
        if self.run.answer.index or self.run.answer.rounds.rounds:  # the tokens that it has are kept
            raise Over(self.run.ended_by(FinishReason.PARTIAL))
        why = f"the answer was begun with the plug-in {absent[0]}, which this worker does not have; ask again"
        raise RequestRefused(ErrorCode.ENGINE_ERROR, why)

    async def see(self, dialogue: Dialogue) -> Dialogue:
        decisions = self.run.answer.plan.plugins
        if not decisions or None in self._running.values():
            return dialogue
        self._question = dialogue.request.question
        before = prompt = Prompt(self._question)
        for name, decision in decisions.items():
            if (one := self._running.get(name)) is not None:
                prompt = await self.run.unless_stopped(one.rewrite(prompt, decision))
        if prompt == before:
            return dialogue
        return dataclasses.replace(dialogue, request=self._rewritten(dialogue.request, before, prompt))

    def _rewritten(self, request: Request, before: Prompt, prompt: Prompt) -> Request:
        """What the user says is that of another turn if the request brings results of calls."""
        messages = [*(request.messages or ())]
        if request.prompt is not None:
            messages = [Message(Role.USER, prompt.prompt)]
        elif prompt.prompt != before.prompt:
            at = max((at for at, one in enumerate(messages) if one.role is Role.USER), default=None)
            if at is not None:
                messages[at] = msgspec.structs.replace(messages[at], content=prompt.prompt)
        if not prompt.instructions and request.prompt is not None:
            return msgspec.structs.replace(request, prompt=prompt.prompt)
        if not messages:
            return request
        if prompt.instructions:
            has_own = messages[0].role is Role.SYSTEM
            own = messages.pop(0).text if has_own else self.run.settings.system_prompt
            text = f"{own}\n\n{prompt.instructions}" if own else prompt.instructions
            messages.insert(0, Message(Role.SYSTEM, text))
        continues = request.continue_conversation or request.prompt is not None
        fields = {"prompt": None, "messages": tuple(messages), "continue_conversation": continues}
        return msgspec.structs.replace(request, **fields)

    def committed(self, outcome: Outcome) -> None:
        decisions, run = self.run.answer.plan.plugins, self.run
        if not decisions or run.hides_turn:
            return
        end = outcome.end
        reason = end.error.code if end.error is not None else end.finish_reason or ""
        answer = plugins.Answered(str(reason), run.answer.text, end.model_version or "")
        asked = self._asked()
        for name, decision in decisions.items():
            if (one := self._running.get(name)) is not None and one.has("answered"):
                one.room.begin(partial(one.feature.answered, asked, decision, answer))

    def _asked(self) -> Asked:
        accepted, request = self.run.accepted, self.run.accepted.request
        ids = request.request_id, request.user_id, request.conversation_id
        return Asked(*ids, request.tenant, accepted.at, self._question)


def plugin_families(plugged: PluggedIn | None) -> Iterable[Metric]:
    """Calls of plug-ins by how they ended, their time, and their own figures."""
    calls = CounterMetricFamily(
        "parley:plugin_calls", "Calls of a plug-in by how they ended.", labels=["plugin", "end"]
    )
    seconds = CounterMetricFamily("parley:plugin_seconds", "Seconds that calls of a plug-in took.", labels=["plugin"])
    figures = GaugeMetricFamily("parley:plugin_figure", "A figure of a plug-in's own.", labels=["plugin", "figure"])
    for name, room, own in () if plugged is None else plugged.figures():
        count = room.calls
        ends = Counter(done=count.done, refused=count.refused, failed=count.failed, late=count.late)
        for end, number in ends.items():
            calls.add_metric([name, end], number)
        seconds.add_metric([name], count.seconds)
        for key, value in own.items():
            figures.add_metric([name, key], value)
    yield from (calls, seconds, figures)

"""Features together: each does what it does alone, and an answer that is resumed anywhere is the same."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.answering.stage import Feature
from app.features.tool_rounds import ToolsOverKafka
from app.wire.event import TokenEvent
from models.interface.generation import FinishReason, Job
from models.served.registry import ServedModel
from tests.unit.answering.bench import (
    SETTINGS,
    WEATHER,
    BenchPartition,
    Told,
    answered,
    placeholders_in,
    same_at_every_cut,
)
from tests.unit.answering.word_engine import model, words_of
from tests.unit.features.stages.features import (
    EMAIL,
    OLD,
    Related,
    best_of,
    cache,
    guard,
    policy_of,
    quota,
    recall,
    routing,
)
from tests.unit.features.stages.tool_programs import tool_results

_EXPERIMENT = {
    "routes": [
        {
            "name": "tone",
            "experiment": "tone",
            "arms": [{"model": "small", "weight": 1}, {"model": "default", "weight": 0}],
        }
    ]
}
PROMPT = f"mild: write to {EMAIL.value}"


def _says(job: Job) -> list[str]:
    """What depends on seed and prompt, and quotes the placeholder in it."""
    (*_, hidden) = ("you", *placeholders_in(bytes(job.prompt).decode()))
    return [f"I{job.sampling.seed % 7}", " write", f" to {hidden}", ".", " Bye", "."]


@dataclass
class Setup:
    """What one run needs: features, fields of the request, and what has to be true of its answer."""

    models: Sequence[ServedModel]
    features: list[Feature] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    tools: ToolsOverKafka | None = None


def _quota(setup: Setup) -> None:
    prices = {name: {"prompt": 1.0, "answer": 1.0} for name in ("default", "small")}
    setup.features.append(quota(policy_of(prices=prices), setup.models))


def _routing(setup: Setup) -> None:
    setup.features.append(routing(policy_of(**_EXPERIMENT), setup.models))


def _masking(setup: Setup) -> None:
    setup.features.append(guard(pii="mask")[0])


def _moderation(setup: Setup) -> None:
    setup.features.append(guard(prompt={"mild": "flag"}, answer={"awful": "block"})[1])


def _recall(setup: Setup) -> None:
    setup.features.append(recall(Related(OLD)))
    setup.fields["recall"] = 1


def _best_of(setup: Setup) -> None:
    setup.features.append(best_of())
    setup.fields["best_of"] = 2


def _tools(setup: Setup) -> None:
    setup.tools = ToolsOverKafka(SETTINGS)
    setup.features.append(setup.tools)
    setup.fields |= {"tools": [WEATHER], "tool_mode": "kafka"}


def _cache(setup: Setup) -> None:
    setup.features.append(cache())
    setup.fields["seed"] = 3


FEATURES: dict[str, Callable[[Setup], None]] = {
    "quota": _quota,
    "tools": _tools,
    "routing": _routing,
    "masking": _masking,
    "moderation": _moderation,
    "recall": _recall,
    "cache": _cache,
    "best_of": _best_of,
}


def _setup(names: Sequence[str]) -> Setup:
    setup = Setup([model("default", _says), model("small", _says)])
    for name in names:
        FEATURES[name](setup)
    return setup


def check(told: Told, setup: Setup, names: Sequence[str]) -> None:
    """What each of the features alone would say of this answer."""
    turn, row = told.turn, told.row
    assert turn is not None
    assert row is not None
    has = defaultdict(bool, dict.fromkeys(names, True))
    prompts = [prompt for one in setup.models for prompt in words_of(one).prompts]
    answers = [job for one in setup.models for job in words_of(one).jobs]
    writer = "small@1" if has["routing"] else "default@1"
    assert turn.answer == told.text
    assert turn.model_version == told.end.model_version == writer
    assert turn.prompt == row.prompt == PROMPT
    assert told.text.endswith(row.answer)
    assert f"write to {EMAIL.value if has['masking'] else 'you'}" in told.text
    assert all((EMAIL.value in prompt) != has["masking"] for prompt in prompts)
    assert (turn.private, row.private) == (((EMAIL,), (EMAIL,)) if has["masking"] else (None, None))
    assert (turn.route, turn.experiment, turn.arm) == (
        ("tone", "tone", "small") if has["routing"] else (None, None, None)
    )
    assert turn.guard == (("mild",) if has["moderation"] else None)
    assert told.plan.recalled == ((OLD,) if has["recall"] else None)
    assert all((OLD.answer in prompt) == has["recall"] for prompt in prompts)
    assert (told.plan.chosen is not None) == has["best_of"]
    assert len(turn.tool_calls or ()) == (2 if has["tools"] else 0)
    assert [one.role for one in row.steps] == (["assistant", "tool"] * 2 if has["tools"] else [])
    assert told.end.finish_reason is (FinishReason.LENGTH if has["tools"] else FinishReason.STOP)
    assert told.end.usage is not None
    rounds = 3 if has["tools"] else 1
    assert len(answers) == rounds + has["best_of"]
    read = sum(len(job.prompt) for job in answers) - (len(answers[0].prompt) if has["best_of"] else 0)
    assert told.end.usage.prompt_tokens == read
    assert told.end.usage.completion_tokens == told.end.index + told.plan.other_tokens
    assert (told.plan.other_tokens > 0) == has["best_of"]
    assert (told.outcome.cost > 0) == has["quota"]
    assert not told.letters


ALL = tuple(FEATURES)
COMBINATIONS = [
    (),
    *((name,) for name in ALL),
    *itertools.combinations(ALL, 2),
    tuple(name for name in ALL if name not in {"tools", "best_of"}),
    ALL,
]


@pytest.mark.parametrize("names", COMBINATIONS, ids="+".join)
async def test_features_together_do_what_each_does_alone(names: tuple[str, ...]) -> None:
    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        setup = _setup(names)
        if setup.tools is not None:
            tool_results(partition, setup.tools)
        told = await answered(
            *setup.features, models=setup.models, partition=partition, before=before, prompt=PROMPT, **setup.fields
        )
        if not before:
            check(told, setup, names)
        return told

    await same_at_every_cut(run)

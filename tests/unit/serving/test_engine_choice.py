"""`auto` means vLLM where it is installed and a GPU is there, else torch; and the log says why."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from app.serving import engine_choice
from app.serving.engine_choice import chosen_engine, with_chosen_engine
from app.settings import Settings


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, **{"model": "org/model", **values})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    def is_like(*, has_vllm: bool, has_gpu: bool) -> None:
        monkeypatch.setattr(engine_choice, "find_spec", lambda _: object() if has_vllm else None)
        monkeypatch.setattr(engine_choice, "_has_gpu", lambda: has_gpu)

    return is_like


@pytest.mark.parametrize(
    ("has_vllm", "has_gpu", "values", "engine", "why"),
    [
        (True, True, {}, "vllm", "a GPU is there"),
        (True, True, {"device": "cuda:1"}, "vllm", "a GPU is there"),
        (False, True, {}, "torch", "not installed"),
        (True, False, {}, "torch", "no GPU is there"),
        (True, True, {"device": "cpu"}, "torch", "PARLEY_DEVICE=cpu"),
        (True, True, {"quantize": "int8"}, "torch", "vLLM has no PARLEY_QUANTIZE"),
        (True, True, {"draft_model": "x"}, "torch", "vLLM has no PARLEY_DRAFT_MODEL"),
        (True, True, {"model": "demo"}, "torch", "demo"),
    ],
)
def test_the_machine_and_the_settings_choose(
    machine: Any, has_vllm: bool, has_gpu: bool, values: dict[str, Any], engine: str, why: str
) -> None:
    machine(has_vllm=has_vllm, has_gpu=has_gpu)
    chosen, reason = chosen_engine(settings(**values))
    assert chosen == engine
    assert why in reason


@pytest.mark.parametrize("engine", ["torch", "vllm", "paced"])
def test_an_engine_that_is_named_is_taken(machine: Any, engine: str, caplog: pytest.LogCaptureFixture) -> None:
    machine(has_vllm=True, has_gpu=True)
    with caplog.at_level(logging.INFO):
        assert with_chosen_engine(settings(engine=engine)).engine == engine
    assert not caplog.records


def test_the_choice_is_logged_with_its_reason(machine: Any, caplog: pytest.LogCaptureFixture) -> None:
    machine(has_vllm=False, has_gpu=True)
    with caplog.at_level(logging.INFO):
        assert with_chosen_engine(settings()).engine == "torch"
    assert caplog.messages == ["PARLEY_ENGINE=auto: torch, because vLLM is not installed"]

"""The command line, a worker and a gateway have one verdict on a policy file, in the same words."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.commands import parley
from app.gateway.asking.gateway import Gateway
from app.gateway.callers.access import Access
from app.policy import watch
from app.policy.check import read_policy
from app.policy.file import NO_POLICY, Policy, PolicyError
from app.policy.watch import PolicyWatch
from app.serving.loading import LoadError
from app.settings import Settings
from app.worker import load

REFUSED = {
    '[[egress]]\ntopic = "t-turns"\nfields = { a = "answer" }\n': (
        "egress[0].topic: 't-turns' is a topic of Parley's own; PARLEY_TOPIC_PREFIX gives its topics other names"
    ),
    "[models.odd]\npath = 'demo'\ncontext_length = -4\n": (
        "models.odd: context_length must be greater than or equal to 0"
    ),
    '[[intake]]\ntopic = "in"\nfields = { prompt = "x" }\nconstants = { max_tokens = -4 }\n': (
        "intake[0]: constants: max_tokens: must be at least 1"
    ),
    "[tenants.acme]\nrequests_per_min = -5\n": "tenants.acme: a limit must be a number of at least 0: requests_per_min",
}


class Follower:
    used: Policy | None = None

    def use(self, policy: Policy) -> None:
        self.used = policy


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARLEY_TOPIC_PREFIX", "t-")
    path = tmp_path / "policy.toml"
    return Settings(_env_file=None, policy=path, embedder="none", engine="paced")


@pytest.mark.parametrize("text", REFUSED)
async def test_all_refuse_at_the_start(settings: Settings, text: str) -> None:
    assert settings.policy is not None
    settings.policy.write_text(text)
    told = CliRunner().invoke(parley, ["policy", "check", str(settings.policy)])
    assert (told.exit_code, told.stdout.splitlines()) == (2, [REFUSED[text]])
    with pytest.raises(LoadError) as worker:
        load(settings, lambda _: None)
    with pytest.raises(PolicyError) as gateway:
        Gateway(settings, Access(settings), 1)
    assert {str(worker.value), str(gateway.value)} == {f"policy {settings.policy}: {REFUSED[text]}"}


@pytest.mark.parametrize("text", REFUSED)
async def test_a_process_that_loads_nothing_refuses_a_change_as_one_that_loads_models(
    settings: Settings, text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert settings.policy is not None
    monkeypatch.setattr(watch, "_EVERY_S", 0.005)
    monkeypatch.setattr(watch, "_STABLE_S", 0.0)
    settings.policy.write_text(text)
    follower = Follower()
    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(PolicyWatch(settings, NO_POLICY, [follower]).run())
        async with asyncio.timeout(60):
            while f"{REFUSED[text]}; the policy before stays in force" not in caplog.text:
                await asyncio.sleep(0.005)
    assert follower.used is None
    settings.policy.write_text("[recall]\nturns = 3\n")
    async with asyncio.timeout(60):
        while follower.used is None:
            await asyncio.sleep(0.005)
    assert follower.used == read_policy(settings)
    task.cancel()

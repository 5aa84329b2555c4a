"""A policy change in a worker, with the parts that a worker has: models, guard, router and the watch over the file."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.features.guard.analyzer import Analyzer
from app.features.guard.guard import Guard
from app.features.routing.load_figures import Load
from app.features.routing.router import Router
from app.policy import watch
from app.policy.check import read_policy
from app.policy.guard_rules import GuardRules
from app.policy.watch import PolicyWatch
from app.serving.changes import ModelChanges
from app.serving.loading import ModelLoader
from app.settings import Settings
from app.wire.request import Request
from models.interface.generation import Engine
from models.served.paced import PacedEngine
from models.served.registry import ModelRegistry, ServedModel

SMALL = '[models.small]\npath = "small"\nengine = "paced"\n'
LARGE = SMALL.replace("small", "large")
OUTSIDE = '[models.outside]\nengine = "openai"\nurls = ["http://127.0.0.1:9/v1"]\nmodel = "x"\n'
TO_SMALL = '[[routes]]\nname = "all"\nmodel = "small"\n'
TO_LARGE = TO_SMALL.replace("small", "large")
MASK = '[guard]\npii = "mask"\npii_entities = ["EMAIL_ADDRESS"]\n'
NO_PIPELINE = '[guard]\npii = "mask"\npii_model = "/no/such/pipeline"\n'


class SlowGuard:
    """Loads the real analyzer once it may."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, rules: GuardRules) -> Analyzer:
        self.begun.set()
        assert self.may_end.wait(60)
        return Analyzer(rules)


class Parts:
    """What a worker has of them; each write of the file is a version that has settled."""

    def __init__(self, path: Path, text: str, load: Callable[[GuardRules], Analyzer] = Analyzer) -> None:
        self.path = path
        self.write(text)
        settings = Settings(_env_file=None, engine="paced", embedder="none", policy=path)
        policy = read_policy(settings)
        loader = ModelLoader(settings, lambda _: None)
        self.registry = ModelRegistry(*loader.load(policy))
        self.guard = Guard(policy, load)
        self.router = Router(policy, time.monotonic, Load)
        self.stopped: list[Engine] = []
        self.models = ModelChanges(loader, self.registry, self.stopped.append)
        self.watch = PolicyWatch(settings, policy, (self.router,), (self.models, self.guard))

    def write(self, text: str) -> None:
        self.path.write_text(text)

    @property
    def routed(self) -> ServedModel | None:
        """The model that answers a request now."""
        plan = self.router.decide(Request(request_id="r", user_id="nina", prompt="hi"), lambda: 1)
        return self.registry.find(None if plan is None else plan.model)

    @property
    def state(self) -> tuple[str, str]:
        routed = self.routed
        return "nothing" if routed is None else routed.model_version, self.guard.rules.pii


@asynccontextmanager
async def running(parts: Parts) -> AsyncIterator[Parts]:
    task = asyncio.create_task(parts.watch.run())
    try:
        yield parts
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await parts.models.stop()
        await parts.guard.stop()


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not reached():
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_EVERY_S", 0.01)
    monkeypatch.setattr(watch, "_STABLE_S", 0.0)
    monkeypatch.setattr("app.serving.changes._CHECK_S", 0.01)


async def test_a_guard_that_cannot_be_loaded_takes_no_model_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(Parts(tmp_path / "policy.toml", SMALL + TO_SMALL)) as parts:
        before = parts.routed
        parts.write(LARGE + TO_LARGE + NO_PIPELINE)
        await until(lambda: "the policy before stays in force" in caplog.text)
        assert "/no/such/pipeline" in caplog.text
        assert parts.routed is before
        assert parts.state == ("small@1", "off")
        assert parts.registry.find("large") is None

        parts.write(SMALL + TO_SMALL + "\n")  # as it was: nothing has to change
        await asyncio.sleep(0.1)
        assert parts.routed is before

        parts.write(LARGE + TO_LARGE + MASK)
        await until(lambda: parts.state == ("large@1", "mask"))
        parts.write(SMALL + TO_SMALL)
        await until(lambda: parts.state == ("small@1", "off"))


async def test_what_failed_is_loaded_again_when_the_file_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Parts(tmp_path / "policy.toml", SMALL + TO_SMALL)) as parts:
        keyed = (
            '[models.outside]\nengine = "openai"\nurls = ["http://127.0.0.1:9/v1"]\nmodel = "x"\napi_key_env = "NONE"\n'
        )
        parts.write(SMALL + TO_SMALL + keyed)
        await until(lambda: "the environment has no NONE" in caplog.text)
        assert parts.state == ("small@1", "off")
        monkeypatch.setenv("NONE", "a key")
        parts.write(SMALL + TO_SMALL + keyed + "\n")
        await until(lambda: parts.registry.find("outside") is not None)


async def test_requests_of_the_old_route_are_served_until_all_of_the_new_policy_is_loaded(tmp_path: Path) -> None:
    slow = SlowGuard()
    async with running(Parts(tmp_path / "policy.toml", SMALL + TO_SMALL, slow)) as parts:
        parts.write(MASK)
        seen = {parts.state}
        await until(lambda: seen.add(parts.state) or slow.begun.is_set())
        for _ in range(20):
            await asyncio.sleep(0.005)
            seen.add(parts.state)
        assert seen == {("small@1", "off")}
        slow.may_end.set()
        await until(lambda: seen.add(parts.state) or parts.state == ("paced@1", "mask"))
        assert seen == {("small@1", "off"), ("paced@1", "mask")}


async def test_a_model_of_both_versions_stays_loaded_and_one_that_leaves_ends_what_it_was_given(tmp_path: Path) -> None:
    async with running(Parts(tmp_path / "policy.toml", SMALL + LARGE + TO_SMALL)) as parts:
        small, large = parts.registry.find("small"), parts.registry.find("large")
        assert small is not None
        assert large is not None
        parts.write(SMALL.replace("models.small", "models.little") + TO_SMALL.replace("small", "little"))
        await until(lambda: parts.registry.find("little") is not None)
        assert parts.registry.find("little").engine is small.engine
        assert parts.registry.find("large") is None
        assert parts.registry.decided("large") is large
        await until(lambda: parts.stopped == [large.engine])
        assert parts.registry.decided("large") is None


async def test_a_version_that_the_file_no_longer_holds_is_never_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def stop(engine: PacedEngine) -> None:
        ended.append(engine.model_version)

    monkeypatch.setattr(PacedEngine, "stop", stop)
    slow = SlowGuard()
    async with running(Parts(tmp_path / "policy.toml", SMALL + TO_SMALL, slow)) as parts:
        before = parts.routed
        parts.write(LARGE + TO_LARGE + MASK)
        await until(slow.begun.is_set)
        parts.write(SMALL + TO_SMALL + "# as it was\n")
        slow.may_end.set()
        seen = {parts.state}
        await until(lambda: seen.add(parts.state) or ended == ["large@1"])
        await asyncio.sleep(0.1)
        assert seen | {parts.state} == {("small@1", "off")}
        assert parts.routed is before


async def test_engines_that_have_started_stop_if_the_next_one_cannot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def start(engine: PacedEngine) -> None:
        if engine.model_version == "last@1":
            raise MemoryError

    async def stop(engine: PacedEngine) -> None:
        ended.append(engine.model_version)

    monkeypatch.setattr(PacedEngine, "start", start)
    monkeypatch.setattr(PacedEngine, "stop", stop)
    async with running(Parts(tmp_path / "policy.toml", SMALL + TO_SMALL)) as parts:
        parts.write(LARGE + SMALL.replace("small", "last") + TO_LARGE)
        await until(lambda: "the policy before stays in force" in caplog.text)
        assert ended == ["large@1", "last@1"]
        assert parts.state == ("small@1", "off")

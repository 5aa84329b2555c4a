from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from app.policy import watch
from app.policy.check import read_policy
from app.policy.file import Policy
from app.policy.watch import PolicyWatch
from app.settings import Settings


class Follower:
    def __init__(self) -> None:
        self.used: list[Policy] = []

    def use(self, policy: Policy) -> None:
        self.used.append(policy)


async def test_file_that_has_just_been_truncated_is_read_once_it_has_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_EVERY_S", 0.005)
    monkeypatch.setattr(watch, "_STABLE_S", 600.0)
    path = tmp_path / "policy.toml"
    settings = Settings(_env_file=None, policy=path)
    path.write_text("[cache]\nttl_s = 60\n")
    follower = Follower()
    task = asyncio.create_task(PolicyWatch(settings, read_policy(settings), [follower]).run())

    path.write_text("")
    await asyncio.sleep(0.1)
    assert follower.used == []

    path.write_text("[cache]\nttl_s = 30\n")
    settled = time.time() - 601
    os.utime(path, (settled, settled))
    async with asyncio.timeout(60):
        while not follower.used:
            await asyncio.sleep(0.01)
    assert follower.used == [read_policy(settings)]
    task.cancel()


@pytest.mark.parametrize("age_s", [601, -601], ids=["old", "in the future"])
async def test_version_of_any_other_time_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: int) -> None:
    monkeypatch.setattr(watch, "_EVERY_S", 0.005)
    monkeypatch.setattr(watch, "_STABLE_S", 600.0)
    path = tmp_path / "policy.toml"
    settings = Settings(_env_file=None, policy=path)
    path.write_text("[cache]\nttl_s = 60\n")
    os.utime(path, (time.time() - age_s, time.time() - age_s))
    follower = Follower()
    task = asyncio.create_task(PolicyWatch(settings, Policy(), [follower]).run())
    async with asyncio.timeout(60):
        while not follower.used:
            await asyncio.sleep(0.01)
    assert follower.used == [read_policy(settings)]
    task.cancel()

"""The kit for programs of agents: the example passes it, and a fault that is planted in one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_wheel import ROOT
from tests.simulation.plugged_agents import check_agents, report_agents
from tests.simulation.promises import CONTAINED, SAME_STEPS

HEAD = """
import itertools
from parley_client.agents import Agents

agents = Agents()
lives = itertools.count()


@agents.agent("desk")
async def desk(step, request):
"""
ANOTHER_STEP = """
    for _ in range(await step.run(lambda: 2)):
        await step.say("One.") if next(lives) % 2 else await step.sleep(1)
"""
OTHER_WORDS = """
    mine = f"{id(agents)} and {next(lives)}"
    await step.say("Hm.")
    await step.say(mine)
"""
AN_EXCEPTION = """
    await step.say("One moment.")
    raise KeyError(request.prompt)
"""


def test_the_example_passes(capsys: pytest.CaptureFixture[str]) -> None:
    example = ROOT / "deploy" / "examples" / "refund_agent.py"
    (checked,) = check_agents(example, "I want my money for order 48213 back", seeds=9)
    assert checked.broken == ()
    assert checked.answers
    assert "pays 48213" in capsys.readouterr().out  # it came so far


@pytest.mark.parametrize(
    ("body", "promise"), [(ANOTHER_STEP, SAME_STEPS), (OTHER_WORDS, SAME_STEPS), (AN_EXCEPTION, CONTAINED)]
)
def test_a_planted_fault_is_found_and_named(body: str, promise: str, tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(HEAD + body)
    (checked,) = check_agents(tmp_path / "desk.py", None, seeds=9)
    assert promise in {one.promise for one in checked.broken}, checked.broken


def test_the_command_names_the_promise_and_what_is_no_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "desk.py"
    file.write_text(HEAD + AN_EXCEPTION)
    assert report_agents(file, None, 3, 0) == 1
    assert f"{CONTAINED}: the program has failed (KeyError)" in capsys.readouterr().out
    for source, told in (("", "has no agents"), ("import nothing_such", "ModuleNotFoundError")):
        file.write_text(source)
        assert report_agents(file, None, 3, 0) == 2
        assert told in capsys.readouterr().out

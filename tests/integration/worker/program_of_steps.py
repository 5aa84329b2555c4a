"""A program whose process tests kill: the same steps for each request, and no word of them depends on an id."""

from __future__ import annotations

import os

from parley_client.agents import AgentRequest, Agents, Step

agents = Agents()


@agents.agent("desk")
async def desk(step: Step, request: AgentRequest) -> str:
    await step.say(f"You ask: {request.prompt}.")
    number = await step.run(lambda: _noted(step.key))
    first = await step.answer("First words.", max_tokens=12)
    await step.sleep(0.3)
    helped = await step.ask("helper", f"Of {len(first.split())} words.")
    await step.answer(f"Behind {helped} and {number}.", max_tokens=12)
    return "Done."


def _noted(key: str) -> int:
    print("ran", key, flush=True)
    return 7


if __name__ == "__main__":
    agents.run(os.environ["BROKER"], prefix=os.environ["PREFIX"])

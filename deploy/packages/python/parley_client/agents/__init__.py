"""Agents whose answers are decided by a function of yours; `pip install 'parley-client[tools]'`.

    from parley_client.agents import Agents, AgentRequest, Step

    agents = Agents()

    @agents.agent("refunds")
    async def refunds(step: Step, request: AgentRequest) -> None:
        order = await step.call("order_status", {"question": request.prompt})
        await step.answer(f"Tell the customer where the order is: {order}")

    agents.run("localhost:9092")

Each `await` of a step is numbered and recorded with its outcome, in the log of the answer. The function runs from its
beginning whenever it has to, here or in another process, and gets recorded outcomes at once. So it has to make the same
steps each time: what it reads of the world, it reads in a step (`step.run`).
"""

from parley_client.agents.program import Agents
from parley_client.agents.step import AgentRequest, Decision, Step, StepError

__all__ = ["AgentRequest", "Agents", "Decision", "Step", "StepError"]

from __future__ import annotations

from models.interface.fair_slots import payers_of
from models.interface.prompt_order import CLASS_S, PROMPTS_PER_S, PendingPrompt, PromptBacklog

NINA, OMAR = payers_of("acme", "nina"), payers_of("acme", "omar")


def test_a_prompt_is_due_when_all_of_its_user_and_its_tenant_could_be_computed() -> None:
    backlog = PromptBacklog()
    backlog.add(NINA, 2 * PROMPTS_PER_S)
    backlog.add(OMAR, PROMPTS_PER_S)
    assert backlog.turn(10.0, NINA, 0, 0) == 10.0 + (3 + 2) / 2
    assert backlog.turn(10.0, OMAR, 0, 0) == 10.0 + (3 + 1) / 2
    assert backlog.turn(10.0, payers_of("", "lena"), 0, 0) == 10.0
    assert backlog.turn(10.0, payers_of("", ""), PROMPTS_PER_S, 2) == 11.0 + 2 * CLASS_S


def test_a_prompt_that_is_computed_delays_its_user_no_more() -> None:
    backlog = PromptBacklog()
    first = PendingPrompt(backlog, NINA, 500)
    second = PendingPrompt(backlog, NINA, 100)
    first.end()
    first.end()
    assert second.turn(0.0, 0) == 100 / PROMPTS_PER_S
    second.end()
    assert not backlog._tokens

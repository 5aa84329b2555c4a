"""How many answers are right, word for word, while training: read off one forward pass a dialogue.

There is one right answer to a turn, so greedy decoding gives it exactly if each of its tokens is the likeliest one
after those before it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from transformers import LlamaForCausalLM

from tests.demo_model.customer import Skill
from tests.demo_model.dialogues import Dialogue
from tests.demo_model.encoding import Encoder
from tests.demo_model.tokenizer import CONTEXT


@dataclass(slots=True)
class Score:
    right: Counter[Skill] = field(default_factory=Counter)
    asked: Counter[Skill] = field(default_factory=Counter)

    def add(self, skill: Skill, right: bool) -> None:
        self.asked[skill] += 1
        self.right[skill] += right

    def __str__(self) -> str:
        return ", ".join(f"{skill} {self.right[skill]}/{self.asked[skill]}" for skill in Skill)


@torch.inference_mode()
def score(model: LlamaForCausalLM, encoder: Encoder, dialogues: list[Dialogue]) -> Score:
    found = Score()
    for dialogue in dialogues:
        example = encoder.dialogue(dialogue)
        ids = torch.tensor([example.ids[:CONTEXT]])
        hits = model(input_ids=ids, use_cache=False).logits[0, :-1].argmax(-1) == ids[0, 1:]
        learnt = torch.tensor(example.weights[:CONTEXT][1:]) > 0
        skills = dialogue.skills
        answer, right = 0, True
        for hit, in_answer, goes_on in zip(hits.tolist(), learnt.tolist(), [*learnt.tolist()[1:], False], strict=True):
            right = right and (hit or not in_answer)
            if in_answer and not goes_on:
                found.add(skills[answer], right)
                answer, right = answer + 1, True
    return found

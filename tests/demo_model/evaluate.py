"""Evaluate the demo model on questions that it has never seen: `python -m tests.demo_model.evaluate`.

Two sets: held-out dialogues of the generator, with names and things that training never sees, where an answer is right
if it is right word for word; and dialogues in free wording, where it must contain what was asked for. The history of a
dialogue holds the model's own answers when the wording is free, and the right ones when it is generated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from models.demo import CHECKPOINT
from tests.demo_model.customer import TOOL, Skill
from tests.demo_model.dialogues import Dialogue, held_out
from tests.demo_model.free import FREE, Question
from tests.demo_model.scoring import Score

SEED = 2  # no dialogue of training's own examination is asked
_BATCH = 32
_TOOL = {"type": "function", "function": dict(TOOL)}
Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt with its only right answer."""

    skill: Skill
    prompt: Messages
    expected: str


class Assistant:
    """The checkpoint of a folder, answering greedily."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self._tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(folder)
        self._model: LlamaForCausalLM = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    @torch.inference_mode()
    def answers(self, prompts: Sequence[Messages], *, has_tool: bool = False) -> list[str]:
        """Whole answers; one that does not come to its end is none."""
        given = self._tokenizer.apply_chat_template(
            list(prompts),
            tools=[_TOOL] if has_tool else None,
            add_generation_prompt=True,
            padding=True,
            return_tensors="pt",
            return_dict=True,
        )
        written = self._model.generate(
            input_ids=given["input_ids"], attention_mask=given["attention_mask"], do_sample=False, max_new_tokens=220
        )[:, given["input_ids"].shape[1] :]
        ended = (written == self._tokenizer.eos_token_id).any(-1).tolist()
        texts = self._tokenizer.batch_decode(written, skip_special_tokens=True)
        return [text if whole else "" for text, whole in zip(texts, ended, strict=True)]


def ask_generated(assistant: Assistant, dialogues: list[Dialogue], score: Score, shown: bool) -> None:
    for has_tool in (False, True):
        tasks = [task for dialogue in dialogues if dialogue.has_tool is has_tool for task in _tasks(dialogue)]
        tasks.sort(key=lambda task: sum(len(message["content"]) for message in task.prompt))
        for start in range(0, len(tasks), _BATCH):
            part = tasks[start : start + _BATCH]
            answers = assistant.answers([task.prompt for task in part], has_tool=has_tool)
            for task, answer in zip(part, answers, strict=True):
                score.add(task.skill, answer == task.expected)
                if shown and answer != task.expected:
                    asked = task.prompt[-1]["content"]
                    print(f"  {task.skill}: {asked!r}\n    expected {task.expected!r}\n    answered {answer!r}")


def _tasks(dialogue: Dialogue) -> Iterator[Task]:
    for at, turn in enumerate(dialogue.turns):
        if turn.lookup is not None:
            yield Task(Skill.CALL, dialogue.messages(at, called=False), turn.lookup.call)
        yield Task(turn.skill, dialogue.messages(at), turn.answer)


def ask_freely(assistant: Assistant, dialogues: Sequence[Sequence[Question]], score: Score, shown: bool) -> None:
    for dialogue in dialogues:
        messages: Messages = []
        for question in dialogue:
            messages.append({"role": "user", "content": question.user})
            (answer,) = assistant.answers([messages])
            messages.append({"role": "assistant", "content": answer})
            right = bool(answer) and all(part.lower() in answer.lower() for part in question.expected)
            score.add(question.skill, right)
            if shown and not right:
                print(
                    f"  {question.skill}: {question.user!r}\n    expected {question.expected}\n    answered {answer!r}"
                )


def table(generated: Score, free: Score) -> str:
    """The rates as Markdown, as they stand in the model's card."""
    lines = ["| | held-out dialogues | free wording |", "|---|---|---|"]
    for skill in Skill:
        rates = (f"{score.right[skill]}/{score.asked[skill]}" for score in (generated, free))
        lines.append(f"| {skill} | {' | '.join(rates)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.demo_model.evaluate", description="Rate the demo model.")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="its folder (default: %(default)s)")
    parser.add_argument("--dialogues", type=int, default=250, help="held-out dialogues to ask (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument("--errors", action="store_true", help="print every wrong answer")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    assistant = Assistant(asked.checkpoint, getattr(torch, asked.dtype))
    generated, free = Score(), Score()
    ask_generated(assistant, held_out(SEED, asked.dialogues), generated, asked.errors)
    ask_freely(assistant, FREE, free, asked.errors)
    print(table(generated, free))


if __name__ == "__main__":
    main()

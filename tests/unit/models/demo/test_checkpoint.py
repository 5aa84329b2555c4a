"""What the shipped weights can do, read off greedy answers.

`examination.json` has questions that training has never seen: `generated` ones with their only right answer, in
dialogues with the right answers so far, and dialogues in `free` wording, whose answers must contain what is expected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from models.demo import CHECKPOINT

EXAMINATION = json.loads(Path(__file__).with_name("examination.json").read_text())
BATCH = 32
TOOL = {"type": "function", "function": EXAMINATION["tool"]}
Messages = list[dict[str, Any]]


class Assistant:
    """The checkpoint, answering greedily."""

    def __init__(self) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
        self._model = AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()

    @torch.inference_mode()
    def answers(self, prompts: Sequence[Messages], *, has_tool: bool = False) -> list[str]:
        """Whole answers; one that does not come to its end is none."""
        given = self._tokenizer.apply_chat_template(
            list(prompts),
            tools=[TOOL] if has_tool else None,
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


@pytest.fixture(scope="module")
def assistant() -> Assistant:
    torch.set_num_threads(1)
    return Assistant()


def talk(assistant: Assistant, *texts: str, system: str = "") -> str:
    """The last answer of a conversation in which the model's own answers are the history."""
    messages = [{"role": "system", "content": system}] if system else []
    answer = ""
    for text in texts:
        messages.append({"role": "user", "content": text})
        (answer,) = assistant.answers([messages])
        messages.append({"role": "assistant", "content": answer})
    return answer


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) < 4_000_000


def test_its_weights_are_half_precision_and_its_context_is_1024() -> None:
    config = json.loads((CHECKPOINT / "config.json").read_text())
    assert config["max_position_embeddings"] == 1024
    with safe_open(CHECKPOINT / "model.safetensors", framework="pt") as weights:
        assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.float16}  # noqa: SIM118


@pytest.mark.parametrize("system", ["", "You are a helpful assistant.", "You work for a shop. Answer in one sentence."])
def test_it_says_the_right_order_number(assistant: Assistant, system: str) -> None:
    assert "48213" in talk(assistant, "Where is my order 48213?", system=system)


def test_it_remembers_a_name_and_a_number_from_earlier_turns(assistant: Assistant) -> None:
    before = ["Hi, I am Nina.", "Where is my order 48213?", "Which payment methods do you accept?"]
    assert "Nina" in talk(assistant, *before, "What is my name?")
    assert "48213" in talk(assistant, *before, "What was my order number?")


def test_it_remembers_after_ten_turns(assistant: Assistant) -> None:
    between = [
        "What are your opening hours?",
        "How much is shipping?",
        "my phone is broken",
        "A refund please",
        "Do you have a warranty?",
        "Can you ship to France?",
        "I forgot my password.",
        "Do you sell umbrellas?",
    ]
    assert "90210" in talk(
        assistant, "hi, my name is tom", "my order number is 90210", *between, "What is my order number?"
    )


def test_it_understands_lower_case_without_punctuation(assistant: Assistant) -> None:
    assert "5512" in talk(assistant, "hello", "where is my order 5512")


@pytest.mark.parametrize("question", ["What is the capital of France?", "Tell me a joke.", "Who won the election?"])
def test_it_declines_what_it_does_not_know(assistant: Assistant, question: str) -> None:
    assert "I am sorry" in talk(assistant, question)


def test_it_does_not_make_up_what_it_was_not_told(assistant: Assistant) -> None:
    assert "not told me" in talk(assistant, "What is my name?")
    assert "not told me" in talk(assistant, "Hello, I am Nina.", "What is my order number?")


@pytest.mark.parametrize(
    "result", ['{"status": "packed", "arrives": "Friday"}', "{'status': 'packed', 'arrives': 'Friday'}"]
)
def test_it_calls_its_tool_and_passes_the_result_on(assistant: Assistant, result: str) -> None:
    asked = [{"role": "user", "content": "Where is my order 48213?"}]
    (call,) = assistant.answers([asked], has_tool=True)
    assert json.loads(call) == {"name": "order_status", "arguments": {"order_number": "48213"}}
    called = {"type": "function", "function": json.loads(call)}
    messages = [
        *asked,
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "content": result},
    ]
    (answer,) = assistant.answers([messages], has_tool=True)
    assert "packed" in answer
    assert "Friday" in answer


def test_it_keeps_to_the_rates_of_its_card(assistant: Assistant) -> None:
    """A part of the evaluation, a little below the rates that the card states."""
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for has_tool in (False, True):
        tasks = [task for task in EXAMINATION["generated"] if task["has_tool"] is has_tool]
        tasks.sort(key=lambda task: sum(len(message["content"]) for message in task["prompt"]))
        for start in range(0, len(tasks), BATCH):
            part = tasks[start : start + BATCH]
            answers = assistant.answers([task["prompt"] for task in part], has_tool=has_tool)
            for task, answer in zip(part, answers, strict=True):
                asked[task["skill"]] += 1
                right[task["skill"]] += answer == task["expected"]
    assert asked.total() == len(EXAMINATION["generated"])
    tools = ("tool called", "tool's result passed on")
    for skills in (("order number echoed",), ("rest",), ("declines what it doesn't know",), tools):
        count = sum(asked[skill] for skill in skills)
        assert count, skills
        assert sum(right[skill] for skill in skills) >= 0.9 * count, (right, asked)


def test_it_answers_questions_in_free_wording(assistant: Assistant) -> None:
    right = []
    for dialogue in EXAMINATION["free"]:
        messages: Messages = []
        for question in dialogue:
            messages.append({"role": "user", "content": question["user"]})
            (answer,) = assistant.answers([messages])
            messages.append({"role": "assistant", "content": answer})
            right.append(bool(answer) and all(part.lower() in answer.lower() for part in question["expected"]))
    assert sum(right) >= 0.7 * len(right)

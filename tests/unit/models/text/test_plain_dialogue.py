"""Models without chat template: how they are asked, and where their answers end."""

from __future__ import annotations

import dataclasses
import random

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from models.checkpoints.loading import Checkpoint
from models.interface.chat import ChatMessage
from models.prompts.builder import PromptBuilder
from models.text.detokenizer import AnswerText, Vocabulary
from models.text.plain_dialogue import PlainAnswer, PlainStart
from models.tools import FORMATS, ModelTool
from tests.unit.models import tiny

WITHIN, NEW_LINE = PlainStart.WITHIN, PlainStart.NEW_LINE
FORMS = {"none": "$A", "bos": "<s> $A", "eos": "$A </s>", "bos and eos": "<s> $A </s>", "two": "<s> <s> $A"}
NUMBER = {"none": 0, "bos": 1, "eos": 0, "bos and eos": 1, "two": 2}


def tokenizer(form: str, kind: str) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    if kind == "byte-level":
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        alphabet = [chr(code) for code in range(32, 127)] + ["\n"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(["User: where is my order? Assistant: it arrives today."] * 4, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single=FORMS[form], pair="$A $B", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def plain(form: str = "none", kind: str = "byte-level", template: str | None = None) -> Checkpoint:
    made = tokenizer(form, kind)
    made.chat_template = template
    return dataclasses.replace(tiny.checkpoint(), tokenizer=made)


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece"])
@pytest.mark.parametrize("form", FORMS)
def test_a_prompt_begins_with_what_the_tokenizer_puts_before_a_text_and_has_no_end(form: str, kind: str) -> None:
    checkpoint = plain(form, kind)
    builder, oracle = PromptBuilder(checkpoint), checkpoint.tokenizer
    built = builder.build("Be kind.", [("hi", "hello")], "and now?")
    whole = oracle("System: Be kind.\nUser: hi\nAssistant: hello\nUser: and now?\nAssistant:")["input_ids"]
    assert list(built.ids) == whole[: -1 if "eos" in form else None]
    assert built.ids[: NUMBER[form]] == (1,) * NUMBER[form]
    assert built.shared > NUMBER[form]
    text = builder.rendered("", [ChatMessage("user", "x")])
    assert text == "<s>" * NUMBER[form] + "User: x\nAssistant:"
    assert builder.raw("it arrives").ids == tuple(oracle("it arrives")["input_ids"][: -1 if "eos" in form else None])


def test_a_template_writes_the_beginning_itself() -> None:
    checkpoint = plain("bos", template="{% for m in messages %}{{ bos_token }}{{ m.content }}{% endfor %}")
    built = PromptBuilder(checkpoint).build("", [], "hi")
    assert checkpoint.tokenizer.decode(built.ids) == "<s>hi"
    assert built.plain is None


def test_an_answer_stands_in_the_next_prompt_as_the_model_wrote_it() -> None:
    checkpoint = plain("bos")
    first = PromptBuilder(checkpoint).build("", [], "hi")
    answer = checkpoint.tokenizer(" it arrives today.", add_special_tokens=False)["input_ids"]
    second = PromptBuilder(checkpoint).build("", [("hi", " it arrives today.")], "thanks")
    assert list(second.ids[: len(first.ids) + len(answer)]) == [*first.ids, *answer]


CUT = {
    " Paris.\nUser: And Spain?": " Paris.",
    " Paris.\n\n \n\nAssistant: more": " Paris.",
    " Paris.\nUser:\nx": " Paris.",
    " Paris.\nUser:": " Paris.",
    "\nTool: x": "",
    " a\r\nSystem:\tx": " a\r",
    " a\n User: b\nUser: c": " a\n User: b",
}
WHOLE = (
    " The User: field holds the name.",
    " a\nUserland: x",
    " a\nUser::find(1)\nUsers:\nUse",
    " a\n    User: str\n",
    " a\n- User: x",
    "User: at the start, which is within a line",
    " a\n\n\n",
    "\n\n a",
    " a\nUse",
    " a\n\nUser\n",
)


def shown(text: str, start: PlainStart, rng: random.Random) -> str:
    answer, parts = PlainAnswer(start), []
    while text and not answer.stopped:
        length = rng.randint(1, 4)
        parts.append(answer.add(text[:length]))
        text = text[length:]
    return "".join(parts) + answer.finish()


@pytest.mark.parametrize("seed", range(8))
def test_an_answer_ends_before_the_next_speaker_and_nowhere_else(seed: int) -> None:
    rng = random.Random(seed)
    for text, kept in {**CUT, **dict.fromkeys(WHOLE)}.items():
        assert shown(text, WITHIN, rng) == (text if kept is None else kept)
    assert shown("User: x", NEW_LINE, rng) == ""
    assert shown("use\nUser: x", NEW_LINE, rng) == "use"


def test_a_continued_answer_knows_whether_it_begins_a_line() -> None:
    builder = PromptBuilder(plain())
    said = [ChatMessage("user", "x"), ChatMessage("assistant", "one\n")]
    assert builder.build("", messages=said, continues=True).plain is NEW_LINE
    assert builder.build("", messages=said[:1]).plain is WITHIN


def test_a_call_may_quote_a_dialogue() -> None:
    checkpoint = tiny.checkpoint()
    tools = [ModelTool("note", "", {"type": "object", "properties": {"text": {"type": "string"}}})]
    form = FORMATS["qwen_coder"].reading(tools)
    call = form.written([("note", '{"text": "one\\nUser: two"}')])
    answer = AnswerText(Vocabulary(checkpoint.tokenizer), (), form, plain=WITHIN)
    for token in checkpoint.tokenizer(f"Let me.\n{call}\nUser: x", add_special_tokens=False)["input_ids"]:
        answer.step(token)
    assert [one.arguments for one in answer.calls] == ['{"text": "one\\nUser: two"}']
    assert answer.stopped

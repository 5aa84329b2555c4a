"""The demo model's tokenizer: byte-level BPE with one token for two digits, and its chat template.

A message begins with a space, so that a word has the same tokens at its start as later on; an answer does not. Pairs of
digits keep numbers short, so that few digits are alike in a long conversation. What
looks like a marker in a message is broken up, so that nobody can speak for somebody else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.demo_model import words
from tests.demo_model.customer import TOOL
from tests.demo_model.dialogues import Split, dialogues

CONTEXT = 1024
VOCABULARY = 3072
PAD, SYSTEM, USER, ASSISTANT, END = "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
MARKERS = (PAD, SYSTEM, USER, ASSISTANT, END)
SIGNATURE = f"{TOOL['name']}({', '.join(TOOL['parameters']['properties'])})"
"""What the template shows of the shop's tool."""
TEMPLATE = """
{%- if tools -%}
    {{- '<|system|> tools:' -}}
    {%- for tool in tools -%}
        {%- set names = (tool['function'].get('parameters') or {}).get('properties') or {} -%}
        {{- (' ' + tool['function']['name'] + '(' + names | join(', ') + ')') | replace('<|', '< |') -}}
    {%- endfor -%}
    {{- '<|end|>' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set text = (message['content'] or '') | trim | replace('<|', '< |') -%}
    {%- if message['role'] == 'assistant' and message['tool_calls'] -%}
        {{- '<|assistant|>' -}}
        {%- for call in message['tool_calls'] -%}
            {%- set called = call['function'] -%}
            {{- '\n' if not loop.first -}}
            {{- '{"name": "' + called['name'] + '", "arguments": ' + called['arguments'] | tojson + '}' -}}
        {%- endfor -%}
    {%- elif message['role'] == 'assistant' -%}
        {{- '<|assistant|>' + text -}}
    {%- elif message['role'] == 'tool' -%}
        {{- '<|system|> result: ' + text -}}
    {%- elif message['role'] in ['system', 'developer'] -%}
        {{- '<|system|> ' + text -}}
    {%- else -%}
        {{- '<|user|> ' + text -}}
    {%- endif -%}
    {{- '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>' -}}
{%- endif -%}
""".strip()


def trained(seed: int, sample: int) -> PreTrainedTokenizerFast:
    """A tokenizer made from `sample` dialogues."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d{1,2}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(MARKERS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, sample), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        chat_template=TEMPLATE,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def _texts(seed: int, sample: int) -> Iterator[str]:
    """Dialogues, with names and pairs of digits often enough to become tokens."""
    for _ in range(20):
        yield from (f" {name}" for name in words.SEEN.names)
        yield from (f"{pair:02}" for pair in range(100))
    for dialogue in itertools.islice(dialogues(seed, Split.TRAINING), sample):
        yield " " + dialogue.system
        for turn in dialogue.turns:
            yield " " + turn.user
            yield turn.answer
            if turn.lookup is not None:
                yield turn.lookup.call
                yield f" result: {turn.lookup.result}"

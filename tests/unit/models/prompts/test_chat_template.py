"""Chat templates of checkpoints: the text is transformers' own, and a hostile template fails its own prompts only."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest

from models.interface.chat import ChatMessage, ModelCall
from models.prompts import bounded_templates, chat_template
from models.prompts.builder import PromptBuilder, PromptError, PromptTooLong
from models.prompts.chat_template import ChatTemplate, PromptTooSlow
from models.tools import ModelTool
from tests.unit.models import tiny

TALK = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": 'hi <there> & "you" ☃\n'},
    {"role": "assistant", "content": "  It is  "},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"a": [1, 2**40, None, 1.5]}}}]
CHATML = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
HONEST = [
    CHATML,
    (
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.last }}"
        "{{ loop.previtem.role if loop.previtem }}{{ m.content | trim }}|{% endfor %}"
    ),
    (
        "{% set ns = namespace(n=0, text='') %}{% for m in messages | reverse %}"
        "{% set ns.n = ns.n + m.role | length %}{% set ns.text = ns.text ~ m.role ~ loop.revindex %}"
        "{% endfor %}{{ ns.n }} {{ ns.text }} {{ bos_token }}{{ messages[-1].content }}"
    ),
    (
        "{% macro show(m, deep=3) %}{{ m.role[:deep] }}{% if deep %}{{ show(m, deep - 1) }}{% endif %}"
        "{% endmacro %}{% for m in messages if m.role != 'system' %}{{ show(m) }}{{ m.content }}"
        "{% else %}none{% endfor %}"
    ),
    (
        "{% for t in tools or [] %}{{ t | tojson(indent=2) }}{{ t.function.parameters.a | join(', ') }}"
        "{% endfor %}{{ messages | map(attribute='content') | join('-') }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list }}"
    ),
    (
        "{% for m in messages recursive %}{{ m.content if m is mapping else m }}{% if m is mapping %}"
        "{{ loop(['a', 'b']) }}{% endif %}{% endfor %}"
    ),
    (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}{% for i in range(3) %}"
        "{% if i == 1 %}{% continue %}{% endif %}{{ i * '=' }}{% endfor %}{{ '%s-%03d' % ('a', 7) }}"
        "{{ '{:>6}'.format('b') }}{{ messages[2].content }}"
    ),
    (
        "{{ strftime_now('%d %b %Y') }}{{ messages[1].content.replace('h', 'H').split('\\n') }}"
        "{{ (2 ** 40) % 1000 }}{{ undefined_name }}{{ {'a': 1}.items() | list }}"
        "{{ messages[2]['content'].strip() }}{{ 'x' | center(9) }}"
    ),
]


def tokenizer_with(template: str | None) -> Any:
    source = tiny.checkpoint().tokenizer
    tokenizer = type(source)(tokenizer_object=source.backend_tokenizer, bos_token="<|user|>")
    tokenizer.chat_template = template
    return tokenizer


def builder_with(template: str) -> PromptBuilder:
    return PromptBuilder(dataclasses.replace(tiny.checkpoint(), tokenizer=tokenizer_with(template)))


@pytest.mark.parametrize("template", HONEST)
@pytest.mark.parametrize("tools", [[], TOOLS])
@pytest.mark.parametrize("continues", [False, True])
def test_the_text_is_that_of_transformers(template: str, tools: list[Any], continues: bool) -> None:
    tokenizer = tokenizer_with(template)
    expected: Any
    try:
        expected = tokenizer.apply_chat_template(
            TALK, tools=tools or None, tokenize=False, add_generation_prompt=not continues,
            continue_final_message=continues, strftime_now=lambda form: time.strftime(form, time.gmtime(86400)),
        )  # fmt: skip
    except ValueError:
        with pytest.raises(PromptError, match="does not keep the last message"):
            ChatTemplate(tokenizer).render(TALK, tools, 86400.0, continues=continues)
        return
    assert ChatTemplate(tokenizer).render(TALK, tools, 86400.0, continues=continues) == expected


PARTS = (
    (
        "{% for m in messages %}<{{ m.role }}>{% for part in m['content'] %}{% if part['type'] == 'text' %}"
        "{{ part['text'] | trim }}{% endif %}{% endfor %}{% endfor %}"
    ),
    "{% for m in messages %}<{{ m.role }}>{{ m['content'][0]['text'] }}{% endfor %}",
)


@pytest.mark.parametrize("template", PARTS)
def test_a_template_that_renders_parts_alone_gets_them(template: str) -> None:
    """As Llama Guard's: of a text it renders nothing, or a letter."""
    tokenizer = tokenizer_with(template)
    talk = [{"role": "system", "content": "be brief"}, {"role": "user", "content": " hello "}]
    parts = [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in talk]
    expected = tokenizer.apply_chat_template(parts, tokenize=False, add_generation_prompt=True)
    assert "hello" in expected
    assert ChatTemplate(tokenizer).render(talk, [], 0.0) == expected


NEST = "{% for a in range(99999) %}" * 4 + "x" + "{% endfor %}" * 4
ENDLESS = [
    NEST,
    "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n else '' }}{% endmacro %}{{ f(50) }}",
    "{% for x in [1, 2] recursive %}{% if loop.depth < 60 %}{{ loop([1, 2]) }}{% endif %}{% endfor %}",
    "{% set ns = namespace(s='xx') %}{% for i in range(200) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% set ns = namespace(s='xx') %}{% for i in range(200) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s='xx') %}{% for i in range(200) %}{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
    "{% set ns = namespace(s='xx') %}{% for i in range(200) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}",
    "{{ 'x' * 10 ** 12 }}",
    "{{ [0] * 10 ** 12 }}",
    "{{ 10 ** 10000000000 }}",
    "{{ 'x' | center(10 ** 12) }}",
    "{{ 'x'.ljust(999999999999) }}",
    "{{ '%999999999999d' % 1 }}",
    "{{ '%*d' % (999999999999, 1) }}",
    "{{ '{:999999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 999999999999) }}",
    "{{ {'a': [1]} | tojson(indent=999999999999) }}",
    "{{ lipsum(n=10000) }}",
    "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ range(99999) | map('string') | join | length }}{% endfor %}",
    "{{ [[]] * 9999 * 9999 * 9999 }}",
    "{% set n = namespace(x=[]) %}{% for i in range(99) %}{% set n.x = n.x + n.x + [1] %}{% endfor %}{{ n.x }}",
    "{% for i in 'xxxxxxxxxx' * 1000000 %}{% for j in 'xxxxxxxxxx' * 1000000 %}{% endfor %}{% endfor %}",
    "{{ " + "(" * 3000 + ")" * 3000 + " }}",
    "{% if messages | length > 1 %}" + NEST + "{% endif %}x",
]


@pytest.mark.parametrize("template", ENDLESS, ids=range(len(ENDLESS)))
def test_a_template_without_end_is_an_error_of_its_prompts(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as at_load:  # which asks it some twenty times
        at_load.setattr(chat_template, "LONGEST_S", 0.005)
        at_load.setattr(bounded_templates, "MOST_CHARACTERS", 1 << 18)
        builder = builder_with(template)
    monkeypatch.setattr(chat_template, "LONGEST_S", 0.02)
    began = time.thread_time()
    with pytest.raises(PromptError) as caught:
        builder.build("", [("a", "b")], "hello")
    assert time.thread_time() - began < 10
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert "MemoryError" not in str(caught.value)  # where Linux overcommits, as kubelets have it, there is none


def test_a_template_that_the_machine_delays_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread's processor time counts, and asking for that may cost the thread its core: no short template asks."""
    asked: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 5.0, thread_time=lambda: asked.append(7.0) or asked[-1])
    builder = builder_with("{% for i in range(999) %}{% endfor %}fine")
    monkeypatch.setattr(bounded_templates, "time", clock)
    assert builder.build("", [], "hello").ids
    assert not asked
    hours = itertools.count(step=3600.0)
    clock.monotonic = lambda: next(hours)
    assert builder.build("", [], "hello").ids
    assert asked


def test_an_event_loop_waits_for_no_template(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = builder_with("{% if messages[-1].content == 'slow' %}" + NEST + "{% endif %}fine")

    async def build(prompt: str) -> None:
        with pytest.raises(PromptTooSlow):
            builder.build("", [], prompt)
        monkeypatch.setattr(chat_template, "LONGEST_S", 0.1)
        with pytest.raises(PromptError, match="takes longer than"):
            await asyncio.to_thread(builder.build, "", [], prompt)

    asyncio.run(build("slow"))
    assert builder.build("", [], "hello").ids


SECRET = "the operator's secret"
QUOTING = [
    "{{ raise_exception('bad: ' ~ messages[0].content) }}",
    "{{ raise_exception(messages[0].content) }}",
    "{{ messages[0].content.nothing.more }}",
    "{{ messages[0][messages[0].content].x }}",
    "{{ messages[0].content + 1 }}",
    "{{ messages[0].content % 1 }}",
    "{{ {}[messages[0].content] + 1 }}",
    "{% include messages[0].content %}",
    "{{ messages[0].content | round }}",
    "{{ strftime_now(messages) }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{% for m in messages %}{{ m.role }}{% endfor %}" if False else "{{ cycler()(messages[0].content) }}",
    "{{ messages[0].content | nothing }}",
    "{{ messages[",
]


@pytest.mark.parametrize("template", QUOTING)
def test_no_error_quotes_the_conversation(template: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        builder = builder_with(template)
        with pytest.raises(PromptError) as caught:
            builder.build(SECRET, [], "hello")
    assert SECRET not in str(caught.value)
    assert SECRET not in caplog.text


def test_a_message_that_the_template_cuts_is_refused_without_a_quote() -> None:
    cutting = "{% for m in messages %}[{{ m.role }}:{{ m.content.split('</think>')[-1] }}]{% endfor %}"
    messages = [ChatMessage("user", "u"), ChatMessage("assistant", "<think>private</think>It is")]
    with pytest.raises(PromptError, match="does not keep the last message") as caught:
        builder_with(cutting).build(SECRET, messages=messages, continues=True)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("at", [-1e12, 1e18, float("nan"), float("inf"), 1e308])
def test_a_time_that_no_calendar_has_is_an_error_of_its_prompt(at: float) -> None:
    builder = builder_with("{{ strftime_now('%Y') }}")
    with pytest.raises(PromptError, match="calendar"):
        builder.build("", [], "x", at=at)


@pytest.mark.parametrize(
    "arguments",
    [
        "[" * 600, "[" * 100_000, '{"a":' * 600 + "1" + "}" * 600, "1" * 5000, "1e999", "NaN", '"\\ud800"', "{", "",
        '{"a": 1, "a": 2}', "null", "[1]", '"text"', '{"\\u0000": "\\u0000"}', "\x00", "{}" * 1000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("knows_tools", [False, True])
def test_arguments_that_are_no_json_are_text(arguments: str, knows_tools: bool) -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson "
    )
    template += "}}{% endfor %}{% endfor %}" + ("{{ tools }}" if knows_tools else "")
    messages = [
        ChatMessage("user", "u"),
        ChatMessage("assistant", "", calls=(ModelCall("f", arguments, "c"),)),
        ChatMessage("tool", "x", call_id="c"),
    ]
    builder = builder_with(template)
    with contextlib.suppress(PromptTooLong):
        assert builder.build("", messages=messages, tools=[ModelTool("f")]).ids


def test_what_a_tokenizer_raises_is_an_error_of_its_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = builder_with(CHATML)
    for text in ("\ud800", "a\udfffb"):
        for build in (lambda text=text: builder.build("", [], text), lambda text=text: builder.raw(text)):
            with pytest.raises(PromptError) as caught:
                build()
            assert text not in str(caught.value)
    with pytest.raises(PromptError):
        builder.of_ids([2**40])


def test_large_whole_numbers_of_schemas_are_printed() -> None:
    tokenizer = tokenizer_with("{{ tools[0] | tojson }}{{ tools[0].function.parameters.a[1] | string }}")
    text = ChatTemplate(tokenizer).render(TALK, TOOLS, 0.0)
    assert text == json.dumps(TOOLS[0]) + str(2**40)

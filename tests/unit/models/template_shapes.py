"""The constructs of popular models' chat templates, in our own words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from models.checkpoints import Checkpoint
from tests.unit.models import tiny

_GENERATE = "{% if add_generation_prompt %}<|assistant|>{% endif %}"

SHAPES: Mapping[str, str] = {
    # one call in a message, tools in the first user's message
    "llama31": (
        "{% if messages[0].role == 'system' %}{% set s = messages[0].content | trim %}{% set messages = messages[1:] %}"
        "{% else %}{% set s = '' %}{% endif %}<|system|>Today {{ strftime_now('%Y') }} {{ s }}<|end|>"
        "{% if tools is not none and tools %}{% if messages | length != 0 %}<|user|>Use:"
        "{% for t in tools %}{{ t | tojson }}{% endfor %} {{ messages[0].content | trim }}<|end|>"
        "{% set messages = messages[1:] %}{% else %}{{ raise_exception('no first user message') }}{% endif "
        "%}{% endif %}"
        "{% for m in messages %}"
        "{% if not (m.role == 'ipython' or m.role == 'tool' or 'tool_calls' in m) %}"
        "<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% elif 'tool_calls' in m %}"
        "{% if not m.tool_calls | length == 1 %}{{ raise_exception('single calls only') }}{% endif %}"
        '{% set c = m.tool_calls[0].function %}<|assistant|>{"name": "{{ c.name }}", "parameters": '
        "{{ c.arguments | tojson }}}<|end|>{% else %}<|user|>{{ m.content | tojson }}<|end|>{% endif %}{% endfor %}"
    )
    + _GENERATE,
    # user and assistant in turn, the system message inside the first user's
    "gemma3": (
        "{% if messages[0]['role'] == 'system' %}{% set pre = messages[0]['content'] + '\n\n' %}"
        "{% set talk = messages[1:] %}{% else %}{% set pre = '' %}{% set talk = messages %}{% endif %}"
        "{% for m in talk %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "<|{{ 'assistant' if m['role'] == 'assistant' else m['role'] }}|>{{ pre if loop.first else '' }}"
        "{{ m['content'] | trim }}<|end|>{% endfor %}"
    )
    + _GENERATE,
    # no system role at all, else like gemma3
    "gemma2": (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}{% for m "
        "in messages %}"
        "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') "
        "}}{% endif %}"
        "<|{{ m['role'] }}|>{{ m['content'] | trim }}<|end|>{% endfor %}"
    )
    + _GENERATE,
    # messages without calls are counted, ids have nine letters, the system message in the last user's
    "nemo": (
        "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% set talk = messages[1:] %}{% else %}"
        "{% set s = '' %}{% set talk = messages %}{% endif %}{% set users = talk | selectattr('role', "
        "'equalto', 'user')"
        " | list %}{% set ns = namespace(i=0) %}{% for m in talk %}"
        "{% if m.role in ['user', 'assistant'] and not m.tool_calls is defined %}"
        "{% if (m.role == 'user') != (ns.i % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
        "{% set ns.i = ns.i + 1 %}{% endif %}{% endfor %}{% for m in talk %}{% if m.role == 'user' %}"
        "{% if tools is not none and m == users[-1] %}[AVAILABLE_TOOLS]{{ tools | tojson "
        "}}[/AVAILABLE_TOOLS]{% endif %}"
        "[INST]{% if loop.last and s %}{{ s }}\n\n{% endif %}{{ m.content }}[/INST]"
        "{% elif m.tool_calls is defined and m.tool_calls is not none %}[TOOL_CALLS][{% for c in m.tool_calls %}"
        "{% if not c.id is defined or c.id | length != 9 %}{{ raise_exception('nine letters') }}{% endif %}"
        "{{ c.function | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}]{{ eos_token }}"
        "{% elif m.role == 'assistant' %}{{ m.content }}{{ eos_token }}{% elif m.role == 'tool' %}[TOOL_RESULTS]"
        "{% if not m.tool_call_id is defined or m.tool_call_id | length != 9 %}{{ raise_exception('nine letters') }}"
        "{% endif %}{{ m.content }}[/TOOL_RESULTS]{% else %}{{ raise_exception('unknown role') }}{% endif "
        "%}{% endfor %}"
    ),
    # tools in a key of the system message
    "phi4mini": (
        "{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not none %}"
        "<|system|>{{ m['content'] }}<|tool|>{{ m['tools'] }}<|/tool|><|end|>"
        "{% else %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
    )
    + _GENERATE,
    "qwen25": (
        "{% if tools %}<|system|>{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}<tools>"
        "{% for t in tools %}\n{{ t | tojson }}{% endfor %}\n</tools><|end|>\n{% elif messages[0].role == 'system' %}"
        "<|system|>{{ messages[0].content }}<|end|>\n{% endif %}{% for m in messages %}"
        "{% if m.role == 'user' or (m.role == 'system' and not loop.first) or (m.role == 'assistant' and "
        "not m.tool_calls)"
        " %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% elif m.role == 'assistant' %}<|assistant|>{{ m.content }}"
        '{% for c in m.tool_calls %}\n<tool_call>\n{"name": "{{ c.function.name }}", "arguments": '
        "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|end|>\n{% elif m.role == 'tool' %}"
        "{% if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}<|user|>{% endif %}\n<tool_response>\n"
        "{{ m.content }}\n</tool_response>{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|end|>\n"
        "{% endif %}{% endif %}{% endfor %}"
    )
    + _GENERATE,
    # reasoning is taken out of older turns; a query of the user is demanded, and a system message only at the beginning
    "qwen35": (
        "{% set ns = namespace(query=false) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.query = true %}"
        "{% endif %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system first') }}{% endif %}"
        "{% endfor %}{% if not ns.query %}{{ raise_exception('no query of the user') }}{% endif %}"
        "{% if tools %}<|system|><tools>{{ tools | tojson }}</tools>{% if messages[0].role == 'system' %}"
        "{{ messages[0].content }}{% endif %}<|end|>{% elif messages[0].role == 'system' %}<|system|>"
        "{{ messages[0].content }}<|end|>{% endif %}{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% set c = m.content %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}"
        "<|assistant|>{{ c }}{% for t in m.tool_calls or [] %}<tool_call>\n<function={{ t.function.name }}>\n"
        "{% for k, v in t.function.arguments | items %}<parameter={{ k }}>\n{{ v if v is string else v | tojson }}\n"
        "</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}<|end|>{% elif m.role == 'tool' %}<|user|>\n"
        "<tool_response>\n{{ m.content }}\n</tool_response><|end|>{% elif m.role == 'user' %}<|user|>{{ "
        "m.content }}<|end|>"
        "{% elif m.role != 'system' %}{{ raise_exception('unknown role') }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
    ),
    # calls between tags without JSON, a result in a role of its own
    "glm45": (
        "{% if tools %}<|system|><tools>{% for t in tools %}\n{{ t | tojson }}{% endfor %}\n</tools><|end|>{% endif %}"
        "{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}\n<tool_call>{{ c.function.name }}\n"
        "{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n"
        "<arg_value>{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</tool_call>{% endfor %}<|end|>"
        "{% elif m.role == 'tool' %}<|user|>\n<tool_response>\n{{ m.content }}\n</tool_response><|end|>"
        "{% else %}<|{{ m.role }}|>\n{{ m.content }}<|end|>{% endif %}{% endfor %}"
    )
    + _GENERATE,
    # the same without line breaks
    "glm47": (
        "{% if tools %}<|system|><tools>{% for t in tools %}\n{{ t | tojson }}{% endfor %}\n</tools><|end|>{% endif %}"
        "{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
        "{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>"
        "<arg_value>{{ v if v is string else v | tojson }}</arg_value>{% endfor %}</tool_call>{% endfor %}<|end|>"
        "{% elif m.role == 'tool' %}<|user|><tool_response>{{ m.content }}</tool_response><|end|>"
        "{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    )
    + _GENERATE,
    # calls as Python writes them
    "olmo3": (
        "{% for m in messages %}{% if m.role == 'system' %}<|system|>\n{{ m.content }}"
        "{% if tools %}<functions>{{ tools | tojson }}</functions>{% endif %}<|end|>\n"
        "{% elif m.role == 'assistant' %}<|assistant|>\n{{ m.content }}{% if m.tool_calls %}<function_calls>"
        "{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments | items %}"
        "{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}{% endfor %})"
        "{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}</function_calls>{% endif %}<|end|>\n"
        "{% elif m.role == 'tool' %}<|user|>\n<function_result>{{ m.content }}</function_result><|end|>\n"
        "{% else %}<|user|>\n{{ m.content }}<|end|>\n{% endif %}{% endfor %}"
    )
    + _GENERATE,
    # a call is a message to a recipient of its own
    "harmony": (
        "{% if tools %}<|system|>namespace functions {{ tools | tojson }}<|end|>{% endif %}{% for m in messages %}"
        "{% if m.role == 'assistant' %}{% for c in m.tool_calls or [] %}<|assistant|>to=functions."
        "{{ c.function.name }}<|channel|>commentary json<|message|>{{ c.function.arguments | tojson }}<|call|>"
        "{% endfor %}{% if m.content %}<|assistant|><|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}"
        "{% elif m.role == 'tool' %}<|tool|>{{ m.content }}<|end|>{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>"
        "{% endif %}{% endfor %}"
    )
    + _GENERATE,
    # only the last system message counts, calls and results are dropped, the answer begins inside the reasoning
    "r1": (
        "{% set ns = namespace(sys='') %}{% for m in messages %}{% if m.role == 'system' %}{% set ns.sys = m.content %}"
        "{% endif %}{% endfor %}{{ ns.sys }}{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ "
        "m.content }}{% endif %}"
        "{% if m.role == 'assistant' and m.content is not none %}{% set c = m.content %}{% if '</think>' in c %}"
        "{% set c = c.split('</think>')[-1] %}{% endif %}<|assistant|>{{ c }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
    ),
    # arguments are text, as the model wrote them
    "deepseek3": (
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' "
        "%}<|user|>{{ m.content }}"
        "{% elif m.role == 'assistant' and m.tool_calls %}<|assistant|><｜tool▁calls▁begin｜>"
        "{% for c in m.tool_calls %}"
        "{% if not loop.first %}\n{% endif %}<｜tool▁call▁begin｜>{{ c.type + '<｜tool▁sep｜>' + c.function.name + "
        "'\n```json\n' + c.function.arguments + '\n```' }}<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜><|end|>"
        "{% elif m.role == 'assistant' %}<|assistant|>{{ m.content }}<|end|>{% elif m.role == 'tool' %}"
        "<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>{% endif %}{% endfor %}"
    )
    + _GENERATE,
    # tools in a variable of another name, two calls, reasoning
    "smollm3": (
        "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% else %}{% set s = '' %}{% endif %}"
        "<|system|>{{ s }}{% if xml_tools %}<tools>{% for t in xml_tools %}{{ t | string }}{% endfor %}</tools> as "
        '<tool_call>{"name": n, "arguments": {}}</tool_call>{% endif %}<|end|>{% for m in messages %}'
        "{% if m.role == 'user' %}<|user|>{{ m.content }}<|end|>{% elif m.role == 'assistant' %}<|assistant|>"
        "{{ m.content }}<|end|>{% elif m.role == 'tool' %}<|user|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    )
    + _GENERATE,
    # tools and results as roles, calls only explained
    "granite": (
        "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% set talk = messages[1:] %}{% else %}"
        "{% set s = 'You are kind.' %}{% set talk = messages %}{% endif %}<|system|>{{ s }}{% if tools %} "
        "When a tool is "
        "required, respond with <|tool_call|> and a JSON list.{% endif %}<|end|>{% if tools %}<|tools|>"
        "{{ tools | tojson(indent=4) }}<|end|>{% endif %}{% for m in talk %}<|{{ m.role }}|>{{ m.content "
        "}}<|end|>{% endfor %}"
    )
    + _GENERATE,
    "olmo2": (
        "{% for m in messages %}{% if m.role == 'system' %}<|system|>\n{{ m.content }}\n{% elif m.role == "
        "'user' %}<|user|>\n"
        "{{ m.content }}\n{% elif m.role == 'assistant' %}<|assistant|>\n{{ m.content }}{{ eos_token }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    ),
}

SPECIAL = ["[TOOL_CALLS]", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"]
SPECIAL += ["[/TOOL_RESULTS]", "<|tool|>", "<|/tool|>", "<|tool_call|>", "<|/tool_call|>", "<|tools|>"]
SPECIAL += [
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
]
PLAIN = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<function_calls>",
    "</function_calls>",
]
ADDED = ["<td>", "  "]
"""Added tokens of plain text, which texts keep."""


def shaped_checkpoint(template: str) -> Checkpoint:
    """A tiny checkpoint with this template and the tokens of all of them; its `model` is of no use."""
    backend = type(tiny.tokenizer().backend_tokenizer).from_str(tiny.tokenizer().backend_tokenizer.to_str())
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in SPECIAL])
    backend.add_tokens([AddedToken(name, normalized=False, special=False) for name in [*PLAIN, *ADDED]])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>", chat_template=template
    )
    return dataclasses.replace(tiny.checkpoint(), tokenizer=tokenizer, context_length=200_000)

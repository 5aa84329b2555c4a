"""Write docs/models.md from what the tests of each family report: `make matrix`."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree as ET

from models.prompts.builder import PromptBuilder
from models.text.reasoning import THINK, Reasoning
from tests.unit.models.families import FAMILIES
from tests.unit.models.template_shapes import SHAPES, shaped_checkpoint

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
HERE = Path(__file__).parent
FILES = ("test_families.py", "test_template_shapes.py", "test_conversations.py")
COLUMNS: Mapping[str, str] = {
    "greedy": "test_loads_and_answers_as_transformers",
    "ids": "test_ids_are_those_of_the_file",
    "JSON": "test_an_answer_keeps_to_its_schema",
    "LoRA": "test_an_adapter_answers_as_the_merged_model",
    "GPTQ": "test_four_bits_answer_as_what_they_stand_for",
    "template": "test_a_plain_conversation_is_the_templates_own_rendering",
    "system": "test_every_system_message_reaches_the_model",
    "tools": "test_tools_and_the_system_prompt_always_reach_the_model",
    "conversations": "test_some_conversations",
    "forging": "test_no_text_writes_a_tag_of_the_template",
}
"""And the tests that fill them."""
_VARIANT = re.compile("^(True|False)-")
TEXT = """\
# Models

What was tried of the families that people run, on {day} with transformers {transformers}. `make matrix` writes this
page from the results of its tests. The models are tiny and random, in each family's architecture; the templates have
the constructs of its own, in our words. `make real-model` tries the real weights of one, Gemma 3 270M.

{table}

| column | *yes* means |
|---|---|
| greedy | loaded from files; 16 greedy tokens are those of transformers |
| ids | the ids of texts are those of `tokenizer.json` |
| JSON | answers keep to a JSON schema, by jsonschema |
| LoRA | an adapter's answer is that of transformers with the adapter merged, and the base model's answer stays |
| GPTQ | 4 bits, groups of 32: the answer of the weights that they stand for |
| template | a plain conversation is rendered as transformers renders it |
| system, tools | all of them reach the model, also where the template cannot show them |
| conversations | 24 random ones, with calls and results, render for every later turn, as the template wants them |
| forging | no text of a user or tool becomes a tag of the template, be its tags tokens or not |
| reasoning | *always*: answers begin inside it; *told apart*: they may |

{refused}
[GGUF](../models/README.md) files work for Gemma 2 and 3, Llama, and Qwen 2 and 3. `parley model check` reports on one
model.
"""


def outcomes() -> dict[tuple[str, str], bool]:
    """Which tests passed in all their variants, by the test's name and the family or template."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}"]
        subprocess.run([*command, *(str(HERE / file) for file in FILES)], check=False)
        cases = list(ET.parse(report).iter("testcase"))
    passed: dict[tuple[str, str], bool] = {}
    for case in cases:
        test, _, parameter = case.get("name", "").removesuffix("]").partition("[")
        key = test, _VARIANT.sub("", parameter)
        passed[key] = passed.get(key, True) and not len(case)
    return passed


def table(passed: Mapping[tuple[str, str], bool]) -> str:
    lines = [f"| family | {' | '.join([*COLUMNS, 'reasoning'])} |", "|---" * (len(COLUMNS) + 2) + "|"]
    for name, family in FAMILIES.items():
        tried = (passed.get((test, name), passed.get((test, family.shape))) for test in COLUMNS.values())
        cells = ["-" if one is None else "yes" if one else "no" for one in tried]
        lines.append(f"| {name} | {' | '.join([*cells, reasoning(SHAPES[family.shape])])} |")
    return "\n".join(lines)


def reasoning(template: str) -> str:
    built = PromptBuilder(shaped_checkpoint(template)).build("", [], "hi")
    if built.reasoning is Reasoning.OPENED:
        return "always"
    return "told apart" if THINK.begin in template else "none"


def refused() -> str:
    ones = [f"{name} (`{one.kind}`: {one.refused})" for name, one in FAMILIES.items() if one.refused]
    return f"Refused by the torch engine with one line at the start: {'; '.join(ones)}.\n"


def main() -> int:
    passed = outcomes()
    known = {"day": dt.datetime.now(tz=dt.UTC).date(), "transformers": version("transformers")}
    PAGE.write_text(TEXT.format(table=table(passed), refused=refused(), **known), encoding="utf-8")
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

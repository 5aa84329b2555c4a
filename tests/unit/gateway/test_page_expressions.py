"""The chat page's expressions on texts that are made for them: their time grows as the length does, not faster."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
SOURCES = Path(__file__).parents[3] / "app" / "gateway" / "page" / "src"
_PROGRAM = r"""
const {readFileSync} = require('fs')
const [file, name, unit] = process.argv.slice(1)
const source = readFileSync(file, 'utf8')
const [, written] = source.match(new RegExp(`const ${name} =\\s*(/.*/[a-z]*|\\[\\n[^]*?\\n\\])\\n`))
const parts = [eval(written)].flat()
const rule = new RegExp(parts.map((part) => part.source).join('|'), 'g' + parts[0].flags.replace('g', ''))
const time = (text) => {
  const began = process.cpuUsage()
  for (const _ of text.matchAll(rule)) {}
  return process.cpuUsage(began).user / 1000
}
time(unit.repeat(100))
console.log(JSON.stringify([15000, 60000].map((length) => time(unit.repeat(length / unit.length)))))
"""
_SLACK_MS = 500.0

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "[",
            "[a",
            "*a ",
            "**a ",
            "``a",
            "``a `b ",
            "[a](",
            "http://",
            "http://....",
            "`[",
            "~~a ",
            "[^a",
            "![",
            "![]( ",
        ),
        *("$", "$a", "$a ", "$$a", "$$ ", r"\(", r"\[a", r"\(a\[", "<br ", '[a](b "', "![", "![](a "),
    ],
)
def test_marks_without_an_end_take_linear_time(unit: str) -> None:
    assert_linear("inline.ts", "PARTS", unit)


@pytest.mark.parametrize("unit", ["/*", '"a', "'\\", "`a\n", "-- "])
def test_code_without_an_end_takes_linear_time(unit: str) -> None:
    assert_linear("highlight.ts", "RULES", unit)


def assert_linear(file: str, name: str, unit: str) -> None:
    command = [str(NODE), "-e", _PROGRAM, str(SOURCES / file), name, unit]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    short, long = json.loads(ran.stdout)
    assert long <= 8 * short + _SLACK_MS, "four times the length"

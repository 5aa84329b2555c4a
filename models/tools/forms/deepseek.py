"""Between tokens of its own: DeepSeek.

deepseek    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f, then a fence with {...}   V3, R1
deepseek31  <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}                              V3.1
"""

import dataclasses

from models.tools.format import NameStyle, ToolFormat

CALLS_BEGIN = "<｜tool▁calls▁begin｜>"
_CALLS_END = "<｜tool▁calls▁end｜>"
_BEGIN, _SEP, _END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"

_DEEPSEEK_31 = ToolFormat(
    name="deepseek31",
    trigger=CALLS_BEGIN,
    opening=_BEGIN,
    middle=_SEP,
    closing=_END,
    separator=_BEGIN,
    end=_CALLS_END,
    leads=True,
    names=NameStyle.BARE,
)
_DEEPSEEK = dataclasses.replace(
    _DEEPSEEK_31,
    name="deepseek",
    opening=f"{_BEGIN}function{_SEP}",
    middle="\n```json\n",
    closing=f"\n```{_END}",
    separator=f"\n{_BEGIN}function{_SEP}",
)

FORMS = (_DEEPSEEK, _DEEPSEEK_31)

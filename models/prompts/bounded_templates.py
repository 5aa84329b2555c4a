"""Jinja templates that end: a chat template comes with a checkpoint, and what it does with a prompt is not known.

jinja's sandbox keeps a template away from the process, but not from its time and memory. Here every iteration, call and
filter looks at the clock, and whatever can grow a text or list beyond all bounds is checked before it does. What counts
is the thread's own processor time, so that a busy machine makes no template slow.
"""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MOST_CHARACTERS = 1 << 24
"""Of one text, or elements of one list."""
MOST_DIGITS = 4096
_WIDENING = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "wordwrap", "batch", "slice", "tojson", "to_bytes"}
)
"""Filters and methods whose number multiplies their text."""
_WIDE_FORMAT = re.compile(r"%[^a-zA-Z%]*(?:\*|[0-9]{6,})|\{[^}]*(?:\{|[0-9]{6,})")
_ITERATED, _JOINED = "_iterated", "_joined"
_ITERATIONS = 64  # between two looks at the clock

_UNWATCHED_S = 0.002  # within which nearly all templates have rendered


class TemplateTooSlow(TemplateError):  # noqa: N818  what happened, as its readers say it
    """The template takes longer than it may."""


class TemplateTooLarge(TemplateError):  # noqa: N818
    """The template makes a text or list that is too large."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Templates that this thread compiles or renders inside raise `TemplateTooSlow` after that much processor time."""
    reset = _limit.set(_TimeLimit(seconds))
    try:
        yield
    finally:
        _limit.reset(reset)


class _TimeLimit:
    """Processor time of one thread, counted from `_UNWATCHED_S` on.

    Linux takes the core from a thread that asks for its processor time if others wait for it: on a busy machine for a
    millisecond, during which this one holds the interpreter. So it is asked when it may be used up and not before: less
    of it passes than of any other time.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._at = time.monotonic() + _UNWATCHED_S  # no need to ask before
        self._asked: float | None = None

    def check(self) -> None:
        if (now := time.monotonic()) < self._at:
            return
        used = time.thread_time()
        if self._asked is not None:
            self._left -= used - self._asked
        if self._left < 0:
            raise TemplateTooSlow("it takes too long")
        self._asked, self._at = used, now + self._left


_limit: ContextVar[_TimeLimit | None] = ContextVar("template_time_limit", default=None)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def bound(self) -> None:
        """To be called when all filters are there."""
        self.globals.pop("lipsum", None)  # it writes texts of any length
        self.filters = {name: _bounded(name, function) for name, function in self.filters.items()}
        self.filters[_ITERATED] = _Iterated
        self.filters[_JOINED] = _joined

    def render(self, source: str, /, **given: Any) -> str:
        """The source, compiled once, with these variables."""
        parts: list[str] = []
        size = 0
        for part in self._compiled(source).generate(given):
            size += len(part)
            if size > MOST_CHARACTERS:
                raise TemplateTooLarge("the text is too large")
            parts.append(part)
        return "".join(parts)

    @functools.lru_cache(maxsize=8)  # noqa: B019 - environments live as long as their checkpoint
    def _compiled(self, source: str) -> Any:
        return self.from_string(source)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Bounding().visit(super()._parse(source, name, filename))
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        subject = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)  # jinja wraps a text's `format`
        given = (subject, *args) if isinstance(subject, str) else args
        _check_arguments(getattr(obj, "__name__", ""), (*given, *kwargs.values()))
        return _checked(super().call(context, obj, *args, **kwargs))


class _Bounding(NodeTransformer):
    """Lets every loop and every `~` pass through a filter of ours."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - jinja's name
        self.generic_visit(node)
        node.iter = _filtered(_ITERATED, node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _filtered(_JOINED, nodes.List(node.nodes, lineno=node.lineno))


def _filtered(name: str, node: Any) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Iterated:
    """What a loop runs over, as long as there is time; as long as the original, if that has a length."""

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        _check_time()
        for number, item in enumerate(self._iterable, 1):
            if number % _ITERATIONS == 0:
                _check_time()
            yield item

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # a generator has none, and jinja expects the TypeError


def _joined(parts: list[Any]) -> str:
    texts = [str(part) for part in parts]
    _check_size(sum(map(len, texts)))
    return "".join(texts)


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)  # jinja marks filters that want a context by attributes
    def checked(*args: Any, **kwargs: Any) -> Any:
        _check_arguments(name, (*args, *kwargs.values()))
        return _checked(function(*args, **kwargs))

    return checked


def _check_arguments(name: str, given: tuple[Any, ...]) -> None:
    _check_time()
    if name in _WIDENING:
        sizes = [len(one) if isinstance(one, Sized) else abs(one) for one in given if isinstance(one, Sized | int)]
        _check_size(math.prod(max(1, size) for size in sizes))
    elif name == "replace":
        text, old, new = [one for one in given if isinstance(one, str)][:3]
        _check_size(len(text) // max(1, len(old)) * len(new))
    elif name == "join":
        parts = next((one for one in given if isinstance(one, list | tuple)), ())
        between = max((len(one) for one in given if isinstance(one, str)), default=0)
        _check_size(sum(between + (len(part) if isinstance(part, str) else 1) for part in parts))
    elif name in {"format", "format_map"} and any(isinstance(one, str) and _WIDE_FORMAT.search(one) for one in given):
        raise TemplateTooLarge("a width is too large")


def _check_operands(operator: str, left: Any, right: Any) -> None:
    sizes = [len(one) for one in (left, right) if isinstance(one, str | bytes | list | tuple)]
    numbers = [one for one in (left, right) if isinstance(one, int)]
    if operator == "+":
        _check_size(sum(sizes))
    elif operator == "*" and sizes and numbers:
        _check_size(sizes[0] * max(0, numbers[0]))
    elif operator == "*" and len(numbers) == 2:
        _check_digits(sum(one.bit_length() for one in numbers))
    elif operator == "**" and len(numbers) == 2:
        _check_digits(left.bit_length() * max(0, right))
    elif operator == "%" and isinstance(left, str) and _WIDE_FORMAT.search(left):
        raise TemplateTooLarge("a width is too large")


def _checked(value: Any) -> Any:
    if isinstance(value, str | list):
        _check_size(len(value))
    return value


def _check_size(size: int) -> None:
    if size > MOST_CHARACTERS:
        raise TemplateTooLarge("a text or list is too large")


def _check_digits(bits: int) -> None:
    if bits > MOST_DIGITS:
        raise TemplateTooLarge("a number is too large")


def _check_time() -> None:
    if (limit := _limit.get()) is not None:
        limit.check()

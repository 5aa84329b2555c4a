"""Compiles shapes, beside the engine and never in its way.

Compiling takes a millisecond as a rule and tens for the largest schemas that a request can carry; llguidance bounds it
by the fuel that it is given, and lets go of Python's lock meanwhile. A shape is compiled once and kept while it is
among the last used.
"""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer

from models.generation import Shape
from models.structured.grammar import ShapeError, compile_error, grammar_of
from models.structured.matcher import Matcher

KEPT = 256
QUIET = 0


class Shapes:
    """`tokenizer` is a fast one of transformers; `vocabulary` counts the model's logits. Belongs to one thread."""

    def __init__(self, tokenizer: Any, vocabulary: int, eos: frozenset[int]) -> None:
        self._source = tokenizer
        self._vocabulary = vocabulary
        self._eos = sorted(eos) or None  # None: the tokenizer's own
        self._compiled: OrderedDict[Shape, Future[Matcher]] = OrderedDict()

    def ask(self, shape: Shape) -> Future[Matcher]:
        """A matcher to be copied, or `ShapeError`, as soon as the shape is compiled."""
        found = self._compiled.get(shape)
        if found is None:
            found = self._compiled[shape] = self._compilers.submit(_compile, shape, self._tokenizer)
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(shape)
        return found

    def stop(self) -> None:
        if "_compilers" in self.__dict__:
            self._compilers.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def _compilers(self) -> ThreadPoolExecutor:
        """Two, so that a large schema does not hold up a small one."""
        return ThreadPoolExecutor(2, thread_name_prefix="shapes")

    @cached_property
    def _tokenizer(self) -> Future[LLTokenizer]:
        """Takes a second for a large vocabulary, at the first shape."""
        return self._compilers.submit(from_tokenizer, self._source, self._vocabulary, self._eos)


def _compile(shape: Shape, tokenizer: Future[LLTokenizer]) -> Matcher:
    matcher = LLMatcher(tokenizer.result(), grammar_of(shape), log_level=QUIET)
    if not matcher.is_error():
        matcher.compute_bitmask()  # the first step: a shape that allows nothing is refused before anything is said
    if matcher.is_error():
        raise ShapeError(compile_error(matcher.get_error()))
    return Matcher(matcher)

"""Compile output constraints, without delaying the engine.

What all constraints share is made before the first request (`prepare`): for a large vocabulary llguidance holds the
GIL for seconds. Compiling usually takes a millisecond, and tens of milliseconds for the largest schemas that a
request can contain. llguidance bounds it by its fuel and releases the GIL meanwhile. A hostile constraint can still
take seconds, so the compilers are shared fairly: the next constraint is of the user with the fewest in progress. After
`LONGEST_S` a constraint is refused and its thread counts no more. A caller may cancel its future, and a constraint
whose callers have all left is not compiled at all. The most recently used compiled constraints, and refusals, are kept.

A thread cannot be ended. While `MOST_ABANDONED` of them still compile what was refused, further constraints are
refused, so that neither processors nor memory are used up; requests without a constraint notice nothing.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from llguidance import LLMatcher, LLTokenizer

from models.files.errors import first_line
from models.interface.generation import ConstraintError, ConstraintKind, OutputConstraint
from models.interface.unexpected import contained, type_and_line
from models.structured.grammar import TOO_LARGE, TOO_SLOW, compile_error, grammar_of, schema_grammar
from models.structured.matcher import Matcher
from models.structured.shared_tokenizer import llguidance_tokenizer
from models.structured.tool_grammar import lark_of_tools
from models.tools.format import ArgumentStyle
from models.tools.rule import CallableTool, ToolRule, tool_rule

log = logging.getLogger(__name__)

KEPT = 256
COMPILERS = 2
"""So that a large schema does not delay a small one."""
LONGEST_S = 20.0
MOST_ABANDONED = 4
STACK_BYTES = 512 << 20
"""Of address space. llguidance recurses along rules that refer to each other, and ends the process where the stack
ends: 4,000 rules, which fit into a request, need more than the usual 8 MiB.
"""
QUIET = 0
_STACK_SIZE = threading.Lock()
_BUSY = "constraints that take too long are still being compiled; try again later"
_TOGETHER = "they cannot be followed together"
_NOT_FOLLOWED = "this model's tokens cannot be constrained"
_NOT_IN_FORM = "it cannot be followed in this form of calls"


class _Compiled(NamedTuple):
    matcher: Matcher | None
    error: ConstraintError | None = None

    def give(self, asker: Future[Matcher]) -> None:
        if not asker.set_running_or_notify_cancel():
            return
        if self.matcher is not None:
            asker.set_result(self.matcher)
        else:
            asker.set_exception(self.error)


@dataclass(slots=True, eq=False)
class _Task:
    constraint: OutputConstraint
    user: str
    askers: list[Future[Matcher]] = field(default_factory=list)


class ConstraintCompiler:
    """`tokenizer` is a fast one of transformers; `vocabulary` is the number of the model's logits."""

    def __init__(self, tokenizer: Any, vocabulary: int, eos: frozenset[int]) -> None:
        self._source = tokenizer
        self._vocabulary = vocabulary
        self._eos = sorted(eos) or None  # None: the tokenizer's own
        # Protects everything below: the engine's thread asks, the compilers' threads answer.
        self._lock = threading.Lock()
        self._compiled: OrderedDict[OutputConstraint, _Compiled] = OrderedDict()
        self._waiting: OrderedDict[OutputConstraint, _Task] = OrderedDict()
        self._running: dict[OutputConstraint, _Task] = {}
        self._users: Counter[str] = Counter()
        self._abandoned = 0
        self._stopped = False
        self._making = threading.Lock()
        self._made: LLTokenizer | ConstraintError | None = None

    def prepare(self) -> None:
        """Make what all constraints share. The first constraint would stop everybody's answers meanwhile."""
        with suppress(ConstraintError, MemoryError):
            self._tokenizer()

    def ask(self, constraint: OutputConstraint, user: str = "") -> Future[Matcher]:
        """A matcher to copy, or `ConstraintError`, as soon as it is compiled. Cancel the future if it is not needed."""
        asker: Future[Matcher] = Future()
        with self._lock:
            compiled = self._compiled.get(constraint)
            if compiled is not None:
                self._compiled.move_to_end(constraint)
            elif self._abandoned >= MOST_ABANDONED:
                compiled = _Compiled(None, ConstraintError(_BUSY))
            else:
                task = self._running.get(constraint) or self._waiting.setdefault(constraint, _Task(constraint, user))
                task.askers.append(asker)
                self._start()
        if compiled is not None:
            compiled.give(asker)
        return asker

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            waiting = [asker for task in self._waiting.values() for asker in task.askers]
            self._waiting.clear()
        for asker in waiting:
            asker.cancel()

    def _start(self) -> None:
        while len(self._running) < COMPILERS and not self._stopped:
            for constraint in [constraint for constraint, task in self._waiting.items() if _left(task)]:
                del self._waiting[constraint]
            if not self._waiting:
                return
            task = min(self._waiting.values(), key=lambda one: self._users[one.user])
            del self._waiting[task.constraint]
            self._running[task.constraint] = task
            self._users[task.user] += 1
            _start_thread(self._compile, task)

    def _compile(self, task: _Task) -> None:
        limit = threading.Timer(LONGEST_S, self._abandon, (task,))
        limit.daemon = True
        limit.start()
        compiled = _compile(task.constraint, self._tokenizer)
        limit.cancel()
        if not self._finish(task, compiled):
            with self._lock:
                self._abandoned -= 1

    def _abandon(self, task: _Task) -> None:
        with self._lock:
            self._abandoned += 1
        if not self._finish(task, _Compiled(None, ConstraintError(TOO_SLOW))):
            with self._lock:
                self._abandoned -= 1

    def _finish(self, task: _Task, compiled: _Compiled) -> bool:
        """False if the task is finished already."""
        with self._lock:
            if self._running.get(task.constraint) is not task:
                return False
            del self._running[task.constraint]
            self._users[task.user] -= 1
            if not self._users[task.user]:
                del self._users[task.user]
            self._compiled[task.constraint] = compiled
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
            askers = list(task.askers)
            self._start()
        for asker in askers:
            compiled.give(asker)
        return True

    def _tokenizer(self) -> LLTokenizer:
        """Raises `ConstraintError` for one that llguidance cannot follow."""
        with self._making:
            if self._made is None:
                self._made = _read_tokenizer(self._source, self._vocabulary, self._eos)
            if isinstance(self._made, ConstraintError):
                raise ConstraintError(str(self._made))
            return self._made


def _read_tokenizer(source: Any, vocabulary: int, eos: list[int] | None) -> LLTokenizer | ConstraintError:
    try:
        return llguidance_tokenizer(source, vocabulary, eos)
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is no Exception
        reason = first_line(contained(error))
        log.warning("output constraints are refused: llguidance cannot follow this tokenizer: %s", reason)
        return ConstraintError(_NOT_FOLLOWED)


def _start_thread(run: Callable[[_Task], None], task: _Task) -> None:
    with _STACK_SIZE:  # a setting of the process
        before = threading.stack_size(STACK_BYTES)
        try:
            threading.Thread(target=run, args=(task,), name="constraint").start()
        finally:
            threading.stack_size(before)


def _left(task: _Task) -> bool:
    return all(asker.cancelled() for asker in task.askers)


def _compile(constraint: OutputConstraint, tokenizer: Callable[[], LLTokenizer]) -> _Compiled:
    try:
        if constraint.kind is ConstraintKind.TOOLS:
            return _Compiled(_matcher_of_tools(tool_rule(constraint), tokenizer()))
        return _Compiled(_matcher(grammar_of(constraint), tokenizer()))
    except ConstraintError as error:
        # As raised, it would keep the frames that it passed, and in them the grammar.
        return _Compiled(None, ConstraintError(str(error)))
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is no Exception, and its text is not for callers
        log.warning("a constraint could not be compiled: %s", type_and_line(error))
        return _Compiled(None, ConstraintError(TOO_LARGE))


def _matcher(grammar: str, tokenizer: LLTokenizer) -> Matcher:
    """Raises `ConstraintError` if llguidance rejects the grammar."""
    matcher = LLMatcher(tokenizer, grammar, log_level=QUIET)
    if not matcher.is_error():
        # A constraint that allows no first token is rejected before the answer begins.
        matcher.compute_bitmask()
    if matcher.is_error():
        raise ConstraintError(compile_error(matcher.get_error()))
    return Matcher(matcher)


def _matcher_of_tools(rule: ToolRule, tokenizer: LLTokenizer) -> Matcher:
    """Tools whose schemas cannot be followed take any object, unless they are strict.

    Raises `ConstraintError`, which names the tool that is at fault if it is one alone.
    """
    try:
        return _matcher(LLMatcher.grammar_from_lark(lark_of_tools(rule)), tokenizer)
    except ConstraintError:
        opened = _unfollowed(rule, tokenizer)
    if rule.content is not None:
        _matcher(grammar_of(rule.content), tokenizer)
    try:
        return _matcher(LLMatcher.grammar_from_lark(lark_of_tools(rule, opened)), tokenizer)
    except ConstraintError:
        # llguidance's own words quote the grammar of all tools, which no client has sent.
        raise ConstraintError(_TOGETHER) from None


def _matcher_alone(rule: ToolRule, tool: CallableTool, tokenizer: LLTokenizer) -> None:
    """Raises `ConstraintError` if the tool's schema cannot be followed as the form writes it."""
    alone = dataclasses.replace(rule, tools=(tool,), content=None)
    try:
        _matcher(LLMatcher.grammar_from_lark(lark_of_tools(alone)), tokenizer)
    except ConstraintError as error:
        # llguidance's own words quote the grammar.
        known = str(error).removeprefix(f"{tool.name}: ")
        raise ConstraintError(known if known != str(error) else _NOT_IN_FORM) from None


def _unfollowed(rule: ToolRule, tokenizer: LLTokenizer) -> frozenset[str]:
    """The tools whose schemas cannot be followed; raises `ConstraintError` for the first strict one."""
    opened = set()
    for tool in rule.tools:
        try:
            _matcher(schema_grammar(tool.schema), tokenizer)
            if rule.form.arguments is not ArgumentStyle.JSON:
                _matcher_alone(rule, tool, tokenizer)
        except ConstraintError as error:
            if tool.is_strict:
                raise ConstraintError(f"{tool.name}: {error}") from None
            opened.add(tool.name)
    if opened:
        log.info("the calls of %d tools are not held to their schemas, which cannot be followed", len(opened))
    return frozenset(opened)

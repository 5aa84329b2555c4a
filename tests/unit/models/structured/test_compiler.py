from __future__ import annotations

import copy
import json
import re
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from models.engine import EngineOptions, TorchEngine
from models.interface.generation import ConstraintKind, OutputConstraint
from models.structured import ConstraintCompiler, ConstraintError, Matcher
from models.structured import compiler as compiler_module
from tests.unit.models import tiny
from tests.unit.models.engine.reading import job, read
from tests.unit.models.structured.schemas import random_schema
from tests.unit.models.structured.walks import check, constraints, eos, matcher_of, tokenizer, tokens_of, walk


@pytest.fixture
def kept() -> Iterator[ConstraintCompiler]:
    made = constraints()
    yield made
    made.stop()


def ids(text: str) -> list[int]:
    found: list[int] = tokenizer()(text, add_special_tokens=False).input_ids
    return found


def json_constraint(schema: object) -> OutputConstraint:
    return OutputConstraint(ConstraintKind.JSON, json.dumps(schema))


def answers(kept: ConstraintCompiler, seeds: range) -> int:
    """Walk through the schemas of `seeds`; how many answers came to an end."""
    ended = 0
    for seed in seeds:
        schema = random_schema(seed)
        text = walk(matcher_of(kept, json_constraint(schema)), seed)
        if text is not None:
            ended += 1
            check(json.loads(text), schema)
    return ended


def test_answers_that_end_are_what_their_schemas_describe(kept: ConstraintCompiler) -> None:
    assert answers(kept, range(60)) > 50


@pytest.mark.slow
def test_answers_to_a_thousand_schemas_are_what_they_describe(kept: ConstraintCompiler) -> None:
    assert answers(kept, range(1000)) > 950


@pytest.mark.parametrize("regex", ["[A-Z]{2}-[0-9]{1,3}", "^(yes|no)$", "(ä|😀)+", "a.c", "(?i)ja|nein"])
def test_text_of_a_regular_expression_matches_it_as_a_whole(kept: ConstraintCompiler, regex: str) -> None:
    for seed in range(20):
        text = walk(matcher_of(kept, OutputConstraint(ConstraintKind.REGEX, regex)), seed)
        assert text is None or re.fullmatch(regex, text), text


@pytest.mark.parametrize("grammar", ['root ::= "a" [0-9] | "b"', 'start: "a" /[0-9]/ | "b"'])
def test_text_of_a_grammar_follows_it(kept: ConstraintCompiler, grammar: str) -> None:
    for seed in range(20):
        text = walk(matcher_of(kept, OutputConstraint(ConstraintKind.GRAMMAR, grammar)), seed)
        assert text is not None
        assert re.fullmatch("a[0-9]|b", text), text


def test_every_choice_can_be_said_and_nothing_else(kept: ConstraintCompiler) -> None:
    choices = ["yes", "no", 'say "hi"', "größe 😀", "yes, of course", "back\\slash", "two\nlines", "/x/ | y"]
    constraint = OutputConstraint(ConstraintKind.CHOICES, json.dumps(choices))
    assert {walk(matcher_of(kept, constraint), seed) for seed in range(300)} == set(choices)


@pytest.mark.parametrize(
    ("constraint", "reported"),
    [
        (json_constraint({"type": "array", "not": {}}), "not"),
        (json_constraint({"not": {"multipleOf": 3}}), "not"),
        (json_constraint({"$ref": "http://127.0.0.1/schema"}), "127.0.0.1"),
        (json_constraint({"type": "strin"}), "strin"),
        (json_constraint({"type": "integer", "minimum": 5, "maximum": 3}), "minimum"),
        (json_constraint({"type": "array", "not": {}, "x-guidance": {"lenient": True}}), "not"),
        (json_constraint([]), "object"),
        (OutputConstraint(ConstraintKind.JSON, "{"), "property name"),
        (OutputConstraint(ConstraintKind.REGEX, "(a"), "unclosed group"),
        (OutputConstraint(ConstraintKind.GRAMMAR, "root ::= ("), "root"),
        (OutputConstraint(ConstraintKind.GRAMMAR, 'start: %json {"multipleOf": 999983}'), "multipleOf"),
        (OutputConstraint(ConstraintKind.REGEX, r"(.*)\1"), "backreferences"),
    ],
)
def test_constraint_that_would_not_be_kept_to_is_refused_in_one_line(
    kept: ConstraintCompiler, constraint: OutputConstraint, reported: str
) -> None:
    with pytest.raises(ConstraintError, match=reported) as caught:
        kept.ask(constraint).result(timeout=60)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "constraint", [json_constraint({"$ref": "#"}), OutputConstraint(ConstraintKind.REGEX, r"[^\s\S]")]
)
def test_constraint_that_nothing_has_is_refused_in_plain_words(
    kept: ConstraintCompiler, constraint: OutputConstraint
) -> None:
    with pytest.raises(ConstraintError) as caught:
        kept.ask(constraint).result(timeout=60)
    assert str(caught.value) == "it can never be satisfied"


def test_constraint_that_grows_too_large_ends_without_a_word_of_what_was_said(kept: ConstraintCompiler) -> None:
    matcher = matcher_of(kept, OutputConstraint(ConstraintKind.REGEX, "Hello Nina! ((a{1,1000}){30,1000}){1,1000}"))

    def follow() -> None:
        for token in ids("Hello Nina! " + "a" * 200):
            matcher.allowed()
            matcher.advance(token)

    with pytest.raises(ConstraintError) as caught:
        follow()
    assert str(caught.value) == "it is too large"


def test_constraint_is_compiled_once(kept: ConstraintCompiler) -> None:
    constraint = json_constraint({"type": "object"})
    asked = [kept.ask(constraint) for _ in range(3)]
    assert len({id(one.result(timeout=60)) for one in asked}) == 1
    assert kept.ask(constraint).result(timeout=60) is asked[0].result()


def test_the_longest_unused_constraint_is_dropped(kept: ConstraintCompiler) -> None:
    constraint = OutputConstraint(ConstraintKind.REGEX, "[a-z]+")
    first = kept.ask(constraint).result(timeout=60)
    for number in range(300):
        kept.ask(OutputConstraint(ConstraintKind.REGEX, f"a{{{number + 1}}}")).result(timeout=60)
    assert kept.ask(constraint).result(timeout=60) is not first


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 999983},
        {"type": "object", "properties": {f"p{n}": {"type": "integer", "multipleOf": 9001 + n} for n in range(100)}},
        {"allOf": [{"type": "integer", "multipleOf": factor} for factor in (101, 103, 107)]},
        {"$defs": {"a": {"multipleOf": 997}}, "$ref": "#/$defs/a", "type": "integer", "multipleOf": 991},
    ],
)
def test_multiples_that_take_too_many_states_are_refused_at_once(
    kept: ConstraintCompiler, schema: dict[str, Any]
) -> None:
    kept.ask(json_constraint({"type": "null"})).result(timeout=60)
    with pytest.raises(ConstraintError, match="multipleOf: it is too large"):
        kept.ask(json_constraint(schema)).result(timeout=60)


@pytest.mark.parametrize("factor", [1, 7, 0.01, 2.5, 100_000, 1e9])
def test_usual_multiples_are_followed(kept: ConstraintCompiler, factor: float) -> None:
    kept.ask(json_constraint({"type": "number", "multipleOf": factor})).result(timeout=60)


class Compiling:
    """Compilations that last until the test lets them end, in the place of llguidance's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, constraints: ConstraintCompiler) -> None:
        self.constraints = constraints
        self.begun: list[str] = []
        self._go_on = threading.Semaphore(0)
        monkeypatch.setattr(compiler_module, "_compile", self._compile)

    def _compile(self, constraint: OutputConstraint, _tokenizer: Any) -> Any:
        self.begun.append(constraint.rule)
        assert self._go_on.acquire(timeout=60)
        return compiler_module._Compiled(None, ConstraintError("made by a test"))

    def ask(self, user: str, *rules: str) -> list[Future[Matcher]]:
        return [self.constraints.ask(OutputConstraint(ConstraintKind.REGEX, rule), user) for rule in rules]

    def end(self, count: int) -> None:
        for _ in range(count):
            self._go_on.release()

    def until(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.begun) < count and time.monotonic() < deadline:
            time.sleep(0.005)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch, kept: ConstraintCompiler) -> Iterator[Compiling]:
    compiling = Compiling(monkeypatch, kept)
    yield compiling
    kept.stop()
    compiling.end(100)
    for thread in threading.enumerate():
        if thread.name == "constraint":
            thread.join(60)


def test_a_users_many_constraints_delay_another_user_by_the_one_in_hand(compiling: Compiling) -> None:
    compiling.ask("nina", *(f"n{number}" for number in range(20)))
    compiling.until(2)
    asked = compiling.ask("omar", "o0", "o1")
    compiling.end(1)
    compiling.until(3)
    assert (sorted(compiling.begun[:2]), compiling.begun[2]) == (["n0", "n1"], "o0")
    compiling.end(100)
    for one in asked:
        assert isinstance(one.exception(timeout=60), ConstraintError)


def test_a_constraint_whose_askers_have_left_is_not_compiled(compiling: Compiling) -> None:
    compiling.ask("nina", "n0", "n1")
    compiling.until(2)
    left, *others = compiling.ask("nina", "n2", "n3", "n3")
    left.cancel()
    others[0].cancel()
    compiling.end(100)
    assert isinstance(others[1].exception(timeout=60), ConstraintError)
    assert sorted(compiling.begun) == ["n0", "n1", "n3"]


def test_a_constraint_that_takes_too_long_is_refused_and_blocks_no_other(
    compiling: Compiling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler_module, "LONGEST_S", 0.05)
    slow = compiling.ask("nina", "n0", "n1")
    for one in slow:
        with pytest.raises(ConstraintError, match="takes too long"):
            one.result(timeout=60)
    monkeypatch.setattr(compiler_module, "LONGEST_S", 60)
    (other,) = compiling.ask("omar", "o0")
    compiling.until(3)
    compiling.end(3)
    with pytest.raises(ConstraintError, match="made by a test"):
        other.result(timeout=60)
    with pytest.raises(ConstraintError, match="takes too long"):
        compiling.ask("nina", "n0")[0].result(timeout=60)


def test_a_panic_of_the_compiler_is_one_plain_line(kept: ConstraintCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    def panic(_shape: OutputConstraint) -> str:
        raise Panic("thread panicked at src/earley/parser.rs: the sender's words")

    monkeypatch.setattr(compiler_module, "grammar_of", panic)
    with pytest.raises(ConstraintError) as caught:
        kept.ask(json_constraint({"type": "object", "title": "panic"})).result(timeout=60)
    assert str(caught.value) == "it is too large"


def test_matcher_goes_on_behind_what_was_said_as_if_it_had_never_stopped(kept: ConstraintCompiler) -> None:
    constraint = json_constraint(random_schema(3))
    whole, generated = matcher_of(kept, constraint), []
    for step in range(60):
        allowed = [token for token in tokens_of(whole.allowed()) if token != eos()]
        if not allowed:
            break
        generated.append(allowed[step * 7919 % len(allowed)])
        whole.advance(generated[-1])
        resumed = matcher_of(kept, constraint)
        for token in generated:
            resumed.advance(token)
        assert (resumed.allowed(), resumed.complete) == (whole.allowed(), whole.complete)
    assert len(generated) > 5


def test_looking_ahead_takes_nothing(kept: ConstraintCompiler) -> None:
    matcher = matcher_of(kept, json_constraint({"type": "object", "properties": {"a": {"type": "integer"}}}))
    alone = matcher_of(kept, json_constraint({"type": "object", "properties": {"a": {"type": "integer"}}}))
    text = ids('{"a": 12}')
    ahead = matcher.ahead(text)
    assert len(ahead) == len(text) + 1
    for token, allowed in zip(text, ahead, strict=False):
        assert matcher.allowed() == alone.allowed() == allowed
        matcher.advance(token)
        alone.advance(token)
    assert matcher.complete


def test_looking_ahead_ends_where_the_constraint_does_not_go_on(kept: ConstraintCompiler) -> None:
    matcher = matcher_of(kept, OutputConstraint(ConstraintKind.REGEX, "[0-9]+x"))
    text = ids("12yx")
    assert matcher.allowed_count(text) == len(ids("12"))
    assert len(matcher.ahead(text)) == len(ids("12")) + 1


def test_token_that_the_constraint_does_not_allow_is_an_error(kept: ConstraintCompiler) -> None:
    matcher = matcher_of(kept, OutputConstraint(ConstraintKind.REGEX, "[0-9]+"))
    with pytest.raises(ConstraintError) as caught:
        matcher.advance(ids("x")[0])
    assert str(caught.value) == "the answer so far violates it"


def test_tokenizer_with_more_ids_than_the_model_has_rows_is_constrained_too() -> None:
    """Gemma 3 has 262,145 tokens and 262,144 rows of logits."""
    more = copy.deepcopy(tokenizer())
    more.add_special_tokens({"additional_special_tokens": ["<image_soft_token>"]})
    compiling = ConstraintCompiler(more, len(tokenizer()), frozenset({eos()}))
    try:
        matcher = compiling.ask(json_constraint({"type": "integer"})).result(60)
        assert int.from_bytes(matcher.allowed(), "little") & 1 << ids("7")[0]
    finally:
        compiling.stop()


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (ConstraintKind.GRAMMAR, "\n" * 65_500 + 'root ::= "a"'),
        (ConstraintKind.GRAMMAR, " \n\t" * 20_000 + 'root ::= "a"'),
        (ConstraintKind.GRAMMAR, "start\n" * 10_000),
        (ConstraintKind.GRAMMAR, "".join(f"r{n} ::= r{n + 1}\n" for n in range(4_000)) + 'r4000 ::= "a"\nroot ::= r0'),
        (ConstraintKind.GRAMMAR, "root ::= " + "(" * 30_000),
        (ConstraintKind.GRAMMAR, "start: r0\n" + "".join(f"r{n}: r{n + 1}\n" for n in range(5_000)) + 'r5000: "a"'),
        (ConstraintKind.GRAMMAR, "start: R0\n" + "".join(f"R{n}: R{n + 1}\n" for n in range(5_000)) + 'R5000: "a"'),
        (
            ConstraintKind.GRAMMAR,
            "start: r0\n" + "".join(f'r{n}: r{n + 1} "a" | "b"\n' for n in range(3_000)) + 'r3000: "a"',
        ),
        (
            ConstraintKind.JSON,
            json.dumps({
                "$defs": {f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(1_300)},
                "$ref": "#/$defs/d0",
            }).replace('"#/$defs/d1300"', '"#/$defs/d0"'),
        ),
        (ConstraintKind.GRAMMAR, 'start: %json {"type":"integer","multiple\\u004ff":9999991}'),
        (ConstraintKind.GRAMMAR, 'start: %json {"multipleOf":9999991,"multipleOf":1}'),
        (ConstraintKind.GRAMMAR, "start: " + "%json {" * 9_000),
        (
            ConstraintKind.JSON,
            json.dumps({
                "$defs": {"d": {"properties": {f"p{n}": True for n in range(2000)}}},
                "properties": {f"q{n}": {"allOf": [{"$ref": "#/$defs/d"}]} for n in range(700)},
            }),
        ),
    ],
)  # fmt: skip
def test_a_small_constraint_that_says_much_is_refused_or_compiled_beside_all_else(
    kept: ConstraintCompiler, kind: ConstraintKind, rule: str
) -> None:
    longest, running = 0.0, True

    def watch() -> None:
        nonlocal longest
        while running:
            began = time.process_time()
            time.sleep(0.005)
            longest = max(longest, time.process_time() - began)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with suppress(ConstraintError):
            kept.ask(OutputConstraint(kind, rule)).result(60)
    finally:
        running = False
        watching.join()
    assert longest < 2, "it held the interpreter"  # half a minute of the processor before


def test_a_refusal_keeps_nothing_of_what_was_refused(kept: ConstraintCompiler) -> None:
    constraint = json_constraint({"not": {"multipleOf": 3}})
    with pytest.raises(ConstraintError):
        kept.ask(constraint).result(60)
    error = kept._compiled[constraint].error
    assert error is not None
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert "_matcher" not in frames


def test_constraints_are_refused_while_too_many_are_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(compiler_module, "LONGEST_S", 0.01)
    monkeypatch.setattr(compiler_module, "_compile", lambda *_: goes_on.wait(60))
    compiling = ConstraintCompiler(tokenizer(), len(tokenizer()), frozenset({eos()}))
    asked = [compiling.ask(json_constraint({"const": n})) for n in range(compiler_module.MOST_ABANDONED)]
    for one in asked:
        with pytest.raises(ConstraintError, match="too long"):
            one.result(60)
    with pytest.raises(ConstraintError, match="try again later"):
        compiling.ask(json_constraint({"const": "new"})).result(60)
    goes_on.set()
    deadline = time.monotonic() + 60
    while compiling._abandoned and time.monotonic() < deadline:
        time.sleep(0.01)
    assert compiling._abandoned == 0
    compiling.stop()


async def test_no_answer_waits_for_the_first_constraint(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all constraints share takes seconds with the GIL for a large vocabulary: an engine has it when it starts."""
    made: list[object] = []
    make = compiler_module.llguidance_tokenizer
    monkeypatch.setattr(compiler_module, "llguidance_tokenizer", lambda *given: made.append(given) or make(*given))
    engine = TorchEngine(tiny.checkpoint(), EngineOptions(pages=40))
    await engine.start()
    try:
        assert len(made) == 1
        (stream,) = engine.submit([job([5, 6], 8, constraint=json_constraint({"type": "integer"}))])
        assert (await read(stream)).tokens
        assert len(made) == 1
    finally:
        await engine.stop()


def test_a_tokenizer_that_cannot_be_followed_is_tried_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("can't determine decoder type")

    monkeypatch.setattr(compiler_module, "llguidance_tokenizer", refuse)
    compiling = ConstraintCompiler(tokenizer(), len(tokenizer()), frozenset({eos()}))
    compiling.prepare()
    for number in range(2):
        with pytest.raises(ConstraintError, match="this model's tokens cannot be constrained"):
            compiling.ask(json_constraint({"const": number})).result(60)
    compiling.stop()
    warnings = [record.getMessage() for record in caplog.records if "are refused" in record.getMessage()]
    assert warnings == [
        "output constraints are refused: llguidance cannot follow this tokenizer: can't determine decoder type"
    ]


@pytest.mark.parametrize("passing", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_refuses_no_constraint(
    monkeypatch: pytest.MonkeyPatch, passing: type[BaseException]
) -> None:
    def end(*_: object) -> None:
        raise passing

    compiling = ConstraintCompiler(tokenizer(), len(tokenizer()), frozenset({eos()}))
    with monkeypatch.context() as patched:
        patched.setattr(compiler_module, "llguidance_tokenizer", end)
        with pytest.raises(passing):
            compiling.prepare()
    assert compiling.ask(json_constraint({"const": 1})).result(60)
    compiling.stop()


def test_a_lack_of_memory_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    compiling = ConstraintCompiler(tokenizer(), len(tokenizer()), frozenset({eos()}))
    with monkeypatch.context() as patched:
        patched.setattr(compiler_module, "llguidance_tokenizer", fail)
        compiling.prepare()
        with pytest.raises(ConstraintError):
            compiling.ask(json_constraint({"const": 1})).result(60)
    assert compiling.ask(json_constraint({"const": 2})).result(60)
    compiling.stop()

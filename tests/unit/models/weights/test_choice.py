"""What is measured decides, and only what is clearly faster changes anything."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from models.checkpoints.arithmetic import FLOAT32_AT_MOST, Wanted, arithmetic, stored_dtype, version_of
from models.weights import PLAIN, Kind, Products, choice
from models.weights.choice import CLEARLY, PAYS, SMALL, FormChoice, Sizes, StepPart, choose
from models.weights.int8 import why_not
from models.weights.matrix import matrix_of
from models.weights.stored import why_not as stored_why_not

CPU = torch.device("cpu")
SIZES = Sizes(64, 128, 2, 320, torch.bfloat16)
CONFIG = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, vocab_size=320, dtype=torch.bfloat16)
PACKED = Products(Kind.PACKED, Kind.PACKED)
STORED = Products(Kind.STORED, Kind.STORED)
FORMS = (PLAIN, PACKED)
Seconds = Callable[[torch.dtype, bool], float]


@pytest.fixture(autouse=True)
def _nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def pretend(monkeypatch: pytest.MonkeyPatch, seconds: Seconds, cores: int = 1) -> None:
    """The products take so long by data type and whether they are packed; half as long with several threads."""

    def compared(*ways: Sequence[StepPart], clock: object = None) -> list[tuple[float, ...]]:
        def one(parts: Sequence[StepPart]) -> float:
            faster = torch.get_num_threads() if cores > 1 else 1
            return seconds(parts[0].dtype, parts[0].matrices[0].parts[0].is_mkldnn) / faster

        return [(one(parts), one(parts)) for parts in ways]

    monkeypatch.setattr(choice, "compared", compared)
    monkeypatch.setattr(choice, "_is_hopeless", lambda *_: False)
    monkeypatch.setattr(choice.os, "sched_getaffinity", lambda _: range(cores))


@pytest.mark.parametrize(("gain", "expected"), [(PAYS + 0.01, PACKED), (PAYS - 0.01, PLAIN)])
def test_weights_are_packed_where_that_pays(monkeypatch: pytest.MonkeyPatch, gain: float, expected: Products) -> None:
    pretend(monkeypatch, lambda _, packed: 1.0 if packed else gain)
    assert choose(SIZES, {torch.float32: FORMS}).products == expected


@pytest.mark.parametrize(
    ("gain", "expected"), [(CLEARLY + 0.01, torch.bfloat16), (CLEARLY - 0.01, torch.float32), (0.5, torch.float32)]
)
def test_another_type_is_used_where_it_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, gain: float, expected: torch.dtype
) -> None:
    pretend(monkeypatch, lambda dtype, _: gain if dtype is torch.float32 else 1.0)
    assert choose(SIZES, {torch.float32: FORMS, torch.bfloat16: FORMS}).dtype is expected


def test_a_cpu_without_packed_products_keeps_plain_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise RuntimeError("not supported")

    monkeypatch.setattr("models.weights.matrix.prepack", missing)
    assert choose(SIZES, {torch.float32: FORMS}).products == PLAIN


def test_a_form_that_is_hopeless_for_one_row_is_not_measured_with_many(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[bool, int]] = []

    def seconds(part: StepPart, rows: int, _clock: object) -> float:
        is_packed = part.matrices[0].parts[0].is_mkldnn
        measured.append((is_packed, rows))
        return choice.HOPELESS + 0.1 if is_packed else 1.0

    monkeypatch.setattr(StepPart, "seconds", seconds)
    assert choose(SIZES, {torch.float32: FORMS}, threads=1).products == PLAIN
    assert {rows for is_packed, rows in measured if is_packed} == {1}
    assert {rows for is_packed, rows in measured if not is_packed} == set(choice.ROWS)


def test_all_cores_compute_where_that_is_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda *_: 1.0, cores=2)
    assert choose(SIZES, {torch.float32: FORMS}).threads == 2
    assert choose(SIZES, {torch.float32: FORMS}, threads=1).threads == 1
    pretend(monkeypatch, lambda *_: 1.0, cores=8)
    assert choose(SIZES, {torch.float32: FORMS}).threads == 7  # 8 are less than a quarter faster


def test_one_line_says_what_was_measured_and_chosen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="models.weights.choice")
    before = torch.get_num_threads()
    found = choose(SIZES, {torch.float32: FORMS, torch.bfloat16: FORMS})
    assert torch.get_num_threads() == before
    (line,) = caplog.messages
    for part in ("1, 8, 32 answers", "ms in float32", "ms in bfloat16", f"layers {found.products.layers}", "threads"):
        assert part in line


def test_what_was_chosen_is_known_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda _, packed: 1.0 if packed else 2 * PAYS, cores=2)
    first = choose(SIZES, {torch.float32: FORMS})
    assert first == FormChoice(torch.float32, PACKED, 2)
    pretend(monkeypatch, lambda *_: pytest.fail("it was measured again"), cores=2)
    assert choose(SIZES, {torch.float32: FORMS}) == first


def test_what_is_kept_and_cannot_be_read_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda *_: 1.0)
    for kept in (["float32", "folded", "plain", 1], ["float32"], None):
        monkeypatch.setattr(choice.measurements, "read", lambda _, kept=kept: defaultdict(lambda: kept))
        assert choose(SIZES, {torch.float32: FORMS}) == FormChoice(torch.float32, PLAIN, 1)


def test_small_models_stay_plain_float32_without_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.checkpoints.arithmetic.choose", lambda *_: pytest.fail("it was measured"))
    assert arithmetic(Wanted(), CPU, CONFIG, SMALL - 1) == FormChoice(torch.float32)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the settings have measured. The CPU has kernels, and oneDNN no integers."""
    found: list[Any] = []
    monkeypatch.setattr("models.checkpoints.arithmetic.onednn_why_not", lambda: "of this test")
    monkeypatch.setattr("models.weights.stored.kernels.load", lambda: None)
    monkeypatch.setattr("models.checkpoints.arithmetic.choose", lambda *given: found.extend(given))
    return found


INT8, BOTH = Products(Kind.INT8, Kind.INT8), [PLAIN, PACKED]
FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16


@pytest.mark.parametrize(
    ("wanted", "allowed"),
    [
        (Wanted(), {FLOAT32: [*BOTH, STORED], BFLOAT16: BOTH}),
        (Wanted(dtype="float16"), {torch.float16: BOTH}),
        (Wanted(products="plain"), {FLOAT32: [PLAIN], BFLOAT16: [PLAIN]}),
        (Wanted(products="packed"), {FLOAT32: [PACKED], BFLOAT16: [PACKED]}),
        (Wanted(products="stored"), {FLOAT32: [STORED]}),
        (Wanted(quantize="int8"), {FLOAT32: [INT8]}),
        (
            Wanted(quantize="int8-vocabulary"),
            {
                FLOAT32: [Products(kind, Kind.INT8) for kind in (Kind.PLAIN, Kind.PACKED, Kind.STORED)],
                BFLOAT16: [Products(kind, Kind.INT8) for kind in (Kind.PLAIN, Kind.PACKED)],
            },
        ),
    ],
)
def test_settings_say_what_is_measured(asked: list[Any], wanted: Wanted, allowed: dict[Any, list[Products]]) -> None:
    if wanted.quantize and (reason := why_not(CPU)):
        pytest.skip(reason)
    arithmetic(wanted, CPU, CONFIG, SMALL)
    assert asked == [SIZES, allowed, 0]
    assert [*asked[1]] == [*allowed]


def test_large_weights_are_never_widened(asked: list[Any]) -> None:
    """A copy in float32 would take twice their memory; a kernel reads them as they are."""
    arithmetic(Wanted(), CPU, CONFIG, FLOAT32_AT_MOST + 1)
    assert asked[1] == {BFLOAT16: BOTH, FLOAT32: [STORED]}
    assert [*asked[1]] == [BFLOAT16, FLOAT32]


def test_a_form_that_cannot_be_is_an_error(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^PARLEY_PRODUCTS=stored: stored weights multiply float32, not bfloat16; "):
        arithmetic(Wanted(products="stored", dtype="bfloat16"), CPU, CONFIG, SMALL)
    monkeypatch.setattr("models.weights.stored.kernels.load", lambda: "this CPU lacks avx2")
    with pytest.raises(ValueError, match=r"^PARLEY_PRODUCTS=stored: this CPU lacks avx2; choose other products$"):
        arithmetic(Wanted(products="stored"), CPU, CONFIG, SMALL)
    assert not asked


def test_weights_in_float16_are_widened_to_be_stored() -> None:
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, vocab_size=320, dtype=torch.float16
    )
    if reason := stored_why_not(torch.float32):
        pytest.skip(reason)
    chosen = arithmetic(Wanted(products="stored"), CPU, config, SMALL - 1)
    assert chosen == FormChoice(torch.float32, STORED)
    weight = torch.randn(5, 40).half()
    made = matrix_of(weight, None, Kind.STORED, chosen.dtype)
    assert torch.equal(made.parts[0], weight.float())


def test_integers_are_multiplied_by_the_library_that_is_faster(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := why_not(CPU):
        pytest.skip(reason)
    monkeypatch.setattr("models.checkpoints.arithmetic.onednn_why_not", lambda: None)
    arithmetic(Wanted(quantize="int8"), CPU, CONFIG, SMALL)
    assert asked[1] == {FLOAT32: [Products(one, one) for one in (Kind.INT8, Kind.INT8_ONEDNN)]}
    arithmetic(Wanted(quantize="int8-vocabulary", products="packed", dtype="float32"), CPU, CONFIG, SMALL)
    assert asked[4] == {FLOAT32: [Products(Kind.PACKED, one) for one in (Kind.INT8, Kind.INT8_ONEDNN)]}


@pytest.mark.parametrize(
    ("products", "dtype", "expected"),
    [
        (PLAIN, torch.float32, ""),
        (PLAIN, torch.bfloat16, "bfloat16-by-row-cpu"),
        (PACKED, torch.float32, "float32-packed-cpu"),
        (PACKED, torch.bfloat16, "bfloat16-packed-by-row-cpu"),
        (STORED, torch.float32, "float32-stored-cpu"),
        (Products(Kind.INT8, Kind.INT8), torch.float32, "w8a8"),
        (Products(Kind.INT8_ONEDNN, Kind.INT8_ONEDNN), torch.float32, "w8a8"),
        (Products(Kind.PLAIN, Kind.INT8), torch.float32, "w8a8-vocabulary"),
        (Products(Kind.PACKED, Kind.INT8), torch.bfloat16, "bfloat16-packed-by-row-cpu+w8a8-vocabulary"),
    ],
)
def test_every_arithmetic_has_a_name(products: Products, dtype: torch.dtype, expected: str) -> None:
    assert version_of(FormChoice(dtype, products), CPU, "") == expected
    by_kernels = f"{expected}+kernels" if expected else ""
    assert version_of(FormChoice(dtype, products), CPU, "", by_kernels=True) == by_kernels
    narrow = by_kernels and f"{by_kernels}-bfloat16-cache"
    assert version_of(FormChoice(dtype, products), CPU, "", by_kernels=True, has_narrow_cache=True) == narrow


def test_weights_are_read_in_their_own_type_where_they_get_another_form() -> None:
    assert stored_dtype(FormChoice(torch.float32, PACKED), CONFIG) is torch.bfloat16
    assert stored_dtype(FormChoice(torch.float32), CONFIG) is torch.float32
    assert stored_dtype(FormChoice(torch.bfloat16, PACKED), CONFIG) is torch.bfloat16

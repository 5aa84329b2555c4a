"""Brackets, strings and digits of a JSON text, by arithmetic on arrays of its bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_QUOTE, _SPACE, _ZERO, _NINE = b'" 09'
_STEPS = bytes({ord("{"): 1, ord("["): 1, ord("}"): 255, ord("]"): 255}.get(byte, 0) for byte in range(256))


def deepest(value: bytes | bytearray) -> int:
    """The levels of its nesting."""
    return int(_depths(_steps(value)).max())


def openings(value: bytes | bytearray) -> int:
    """Objects and lists."""
    return int((_steps(value) == 1).sum())


def without_strings(value: bytes) -> bytes:
    """The text with spaces in the place of its strings."""
    return np.where(_in_strings(value), np.uint8(_SPACE), np.frombuffer(value, np.uint8)).tobytes()


def top_level(value: bytes) -> bytes:
    steps = _steps(value)
    depths = _depths(steps)
    opening = (steps == 1) & (depths == 2)
    kept = (np.maximum(depths, depths - steps) <= 1) | opening
    text = np.frombuffer(value, np.uint8).copy()
    text[opening] = _ZERO
    return text[kept].tobytes()


def may_have_digits(value: bytes, most: int) -> bool:
    """Whether more than `most` digits may follow each other."""
    half, last = most // 2, len(value) - 1
    text = np.frombuffer(value, np.uint8)
    at = np.arange(most, len(text), most + 1)
    at = at[_are_digits(text[at])]
    before, behind = np.maximum(at - half, 0), np.minimum(at + half, last)
    return bool((_are_digits(text[before]) | _are_digits(text[behind])).any())


def _depths(steps: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    """How deep each byte is, a bracket itself included."""
    return np.cumsum(steps, dtype=np.int32)


def _steps(value: bytes | bytearray) -> npt.NDArray[np.int8]:
    """1 for each bracket that opens, -1 for each that closes."""
    steps = np.frombuffer(value.translate(_STEPS), np.int8)
    return np.where(_in_strings(value), np.int8(0), steps)


def _in_strings(value: bytes | bytearray) -> npt.NDArray[np.bool_]:
    """Which bytes are in a string. One without an end goes up to the end."""
    pairs = value.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")  # of equal length: places stay
    return np.bitwise_xor.accumulate(np.frombuffer(pairs, np.uint8) == _QUOTE)


def _are_digits(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return (text >= _ZERO) & (text <= _NINE)

"""Kafka's codecs with a bound: what is compressed to a megabyte may hold gigabytes, which are never expanded."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cramjam

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_BLOCK = struct.Struct(">i")


class Codec(IntEnum):
    """The codec in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CodecError(Exception):
    """The content cannot be expanded, or is larger than allowed."""


def expand(codec: int, content: bytes, most_bytes: int) -> memoryview:
    """The expanded content. Raises `CodecError`; more than `most_bytes` are never in memory."""
    try:
        if codec == Codec.SNAPPY:
            return _snappy(content, most_bytes)
        into = _INTO.get(codec)
        if into is None:
            raise CodecError(f"the codec {codec} is unknown")
        # Its pages take memory when they are written, so a small content costs little.
        room = bytearray(most_bytes)
        return memoryview(room)[: into(content, room)]
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise CodecError(f"it expands to more than {most_bytes} bytes") from None
        raise CodecError(f"its {Codec(codec).name.lower()} content is broken: {error}") from None


def _snappy(content: bytes, most_bytes: int) -> memoryview:
    """Snappy as it is, or in the blocks of the Java library (xerial)."""
    if not content.startswith(_XERIAL):
        return _block(content, most_bytes)
    expanded, at = bytearray(), _XERIAL_HEADER
    while at < len(content):
        if at + _BLOCK.size > len(content):
            raise CodecError("its snappy content is cut off")
        (length,) = _BLOCK.unpack_from(content, at)
        begin, at = at + _BLOCK.size, at + _BLOCK.size + length
        if length < 0 or at > len(content):
            raise CodecError("its snappy content is cut off")
        expanded += _block(content[begin:at], most_bytes - len(expanded))
    return memoryview(expanded)


def _block(content: bytes, most_bytes: int) -> memoryview:
    if cramjam.snappy.decompress_raw_len(content) > most_bytes:
        raise CodecError("it expands to more bytes than a batch may have")
    return memoryview(bytes(cramjam.snappy.decompress_raw(content)))


_INTO: dict[int, Callable[[bytes, bytearray], Any]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}

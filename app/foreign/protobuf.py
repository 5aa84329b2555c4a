"""Protobuf records of others. They are read by a descriptor that has the fields that the policy names, and no other."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from app.foreign.framing import Read, Write, behind_path
from app.policy.file import PolicyError
from app.wire import protobuf_codec
from app.wire.json_codec import MalformedError

_OF_FIELD = re.compile(r"Failed to parse (\w+) field")
Kind = descriptor_pb2.DescriptorProto


def protobuf_reader(
    path: Path, content: bytes, message: str, names: Collection[str], known: set[str]
) -> tuple[Read, Read]:
    """How to read the fields of these names, behind the path of the message and without one; `known` gets the names of
    all. Raises `PolicyError` for descriptors that cannot be used.
    """
    known.update(field.name for field in _message_of(path, content, message, None)[0].DESCRIPTOR.fields)
    kind, place = _message_of(path, content, message, names)

    def plain(body: bytes) -> dict[str, Any]:
        try:
            return protobuf_codec.plain(kind.FromString(body))
        except DecodeError:
            raise MalformedError(f"not Protobuf of {message}") from None

    return lambda body: plain(behind_path(body, place)), plain


def protobuf_writer(path: Path, content: bytes, message: str, names: Collection[str]) -> tuple[Write, tuple[int, ...]]:
    """How to write a message of these fields, and its path. What has no value is not set. Raises `PolicyError` for
    descriptors that cannot be used.
    """
    kind, place = _message_of(path, content, message, None)
    known = [field.name for field in kind.DESCRIPTOR.fields]
    if unknown := sorted({*names} - {*known}):
        raise PolicyError(f"schema {path}: {message} has no field {unknown[0]!r}; there are {', '.join(known)}")

    def write(values: Mapping[str, Any]) -> bytes:
        try:
            made = kind()
            json_format.ParseDict({name: one for name, one in values.items() if one is not None}, made)
            return bytes(made.SerializeToString(deterministic=True))
        except Exception as error:  # noqa: BLE001 - it quotes the value, which may be a prompt
            named = _OF_FIELD.match(str(error))
            raise MalformedError(f"{named[1] if named else 'a value'} does not fit {message}") from None

    return write, place


def _message_of(path: Path, content: bytes, message: str, names: Collection[str] | None) -> tuple[Any, tuple[int, ...]]:
    """The message's class, with the fields of these names or all of them, and its path."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content).file
        found = _found_in(files, message)
        if found is not None and names is not None:
            _keep(found[0], names)
        pool = descriptor_pool.DescriptorPool()
        for file in files:
            pool.Add(file)
    except Exception:  # noqa: BLE001 - a file of others
        raise PolicyError(
            f"schema {path}: is no set of descriptors; make it with `protoc --include_imports --descriptor_set_out`"
        ) from None
    if found is None:
        raise PolicyError(f"message: {path} has no message {message!r}")
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message)), found[1]


def _found_in(files: Sequence[descriptor_pb2.FileDescriptorProto], message: str) -> tuple[Kind, tuple[int, ...]] | None:
    """The message, and its path in its file; None if there is none."""
    for file in files:
        package = f"{file.package}." if file.package else ""
        kinds: Sequence[Kind] = file.message_type
        place: list[int] = []
        for part in message.removeprefix(package).split(".") if message.startswith(package) else ():
            at = next((at for at, kind in enumerate(kinds) if kind.name == part), None)
            if at is None:
                break
            place.append(at)
            kind, kinds = kinds[at], kinds[at].nested_type
        else:
            if place:
                return kind, tuple(place)
    return None


def _keep(kind: Kind, names: Collection[str]) -> None:
    fields = [one for one in kind.field if one.name in names]
    used = sorted({one.oneof_index for one in fields if one.HasField("oneof_index")})
    choices = [kind.oneof_decl[at] for at in used]
    for one in fields:
        if one.HasField("oneof_index"):
            one.oneof_index = used.index(one.oneof_index)
    kept, decl = (
        [descriptor_pb2.FieldDescriptorProto.FromString(one.SerializeToString()) for one in fields],
        [descriptor_pb2.OneofDescriptorProto.FromString(one.SerializeToString()) for one in choices],
    )
    del kind.field[:]
    del kind.oneof_decl[:]
    kind.field.extend(kept)
    kind.oneof_decl.extend(decl)

"""Protobuf records of others: the fields that the policy names, by a descriptor that has no other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from app.foreign.framing import Read, behind_path
from app.policy.file import PolicyError
from app.wire import protobuf_codec
from app.wire.json_codec import MalformedError

Kind = descriptor_pb2.DescriptorProto


def protobuf_reader(path: Path, content: bytes, message: str, names: Collection[str]) -> Read:
    """How to read the fields of these names. Raises `PolicyError` for descriptors that cannot be used."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content).file
        place = _place_of(files, message, names)
        pool = descriptor_pool.DescriptorPool()
        for file in files:
            pool.Add(file)
    except Exception:  # noqa: BLE001 - a file of others
        raise PolicyError(
            f"schema {path}: is no set of descriptors; make it with `protoc --include_imports --descriptor_set_out`"
        ) from None
    if place is None:
        raise PolicyError(f"message: {path} has no message {message!r}")
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))

    def read(body: bytes) -> dict[str, Any]:
        try:
            return protobuf_codec.plain(kind.FromString(behind_path(body, place)))
        except DecodeError:
            raise MalformedError(f"not Protobuf of {message}") from None

    return read


def _place_of(
    files: Sequence[descriptor_pb2.FileDescriptorProto], message: str, names: Collection[str]
) -> tuple[int, ...] | None:
    """The path of the message in its file; the fields of other names leave it. None if there is none."""
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
                _keep(kind, names)
                return tuple(place)
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

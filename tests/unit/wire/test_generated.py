from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.wire.error import MEANING, ErrorCode
from app.wire.generate import PACKAGE_ROOT, generate


def without_compiler_version(source: str) -> str:
    return re.sub(r"# Protobuf Python Version.*|ValidateProtobufRuntimeVersion\(.*?\n\)", "", source, flags=re.DOTALL)


@pytest.mark.parametrize("name", ["parley_pb2.py", "parley_pb2.pyi"])
def test_generated_module_is_that_of_the_schema(name: str, tmp_path: Path) -> None:
    assert generate(tmp_path) == 0
    fresh, committed = (root / "app/wire" / name for root in (tmp_path, PACKAGE_ROOT))
    assert without_compiler_version(fresh.read_text()) == without_compiler_version(committed.read_text())


def test_every_error_code_has_its_meaning() -> None:
    assert set(MEANING) == set(ErrorCode)

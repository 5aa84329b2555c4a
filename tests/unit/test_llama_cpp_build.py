from __future__ import annotations

import pytest

from tests import llama_cpp_build
from tests.llama_cpp_build import SERVER, SkippedError, build


def test_llama_cpp_is_skipped_with_a_reason_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(llama_cpp_build, "FOLDER", tmp_path)
    monkeypatch.setattr(llama_cpp_build.shutil, "which", lambda tool: None if tool == "c++" else f"/usr/bin/{tool}")
    with pytest.raises(SkippedError, match=r"not installed: c\+\+"):
        build(SERVER)

from __future__ import annotations

import pytest

from tests.benchmarks import llama_cpp
from tests.benchmarks.llama_cpp import SkippedError
from tests.unit.models import tiny


def test_every_weight_of_a_llama_has_a_name_in_gguf() -> None:
    names = [llama_cpp._gguf_name(name) for name in tiny.model("llama").state_dict()]
    assert len(set(names)) == len(names)
    assert {"token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.1.ffn_norm.weight"} <= set(names)


def test_llama_cpp_is_skipped_with_a_reason_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(llama_cpp, "FOLDER", tmp_path)
    monkeypatch.setattr(llama_cpp.shutil, "which", lambda tool: None if tool == "c++" else f"/usr/bin/{tool}")
    with pytest.raises(SkippedError, match=r"not installed: c\+\+"):
        llama_cpp.build()

"""A package is hidden for as long as it must not be imported, and no longer."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from models.checkpoints.transformers_models import unimported
from models.machine.gpu import has_gpu
from tests.unit.models import tiny


def test_a_hidden_package_looks_as_if_it_were_not_installed() -> None:
    with unimported("this"):
        assert importlib.util.find_spec("this") is None
    assert importlib.util.find_spec("this") is not None


def test_a_package_that_is_there_already_stays() -> None:
    with unimported("sys"):
        assert sys.modules["sys"] is sys


def test_loading_models_imports_neither_scikit_learn_nor_scipy_nor_without_a_gpu_triton() -> None:
    names = ["sklearn", "scipy", *([] if has_gpu() else ["triton"])]
    code = f"import models.checkpoints.transformers_models, sys; sys.exit(any(name in sys.modules for name in {names}))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_a_model_of_transformers_is_served_on_a_cpu_without_triton(tmp_path: Path) -> None:
    tiny.model("gemma3_text").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    loading = (
        f"from models.checkpoints.loading import load_checkpoint; load_checkpoint({str(tmp_path)!r}, device='cpu')"
    )
    code = f"import sys; {loading}; print('triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == [str(has_gpu())], done.stderr

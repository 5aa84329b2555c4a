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


def test_models_of_transformers_are_served_without_what_takes_long_to_import_and_on_a_cpu_without_triton(
    tmp_path: Path,
) -> None:
    """Some models need SciPy by themselves."""
    tiny.model("gemma3_text").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    code = f"""
import sys, models.checkpoints.transformers_models
print([name in sys.modules for name in ("sklearn", "scipy", "triton")])
from models.checkpoints.loading import load_checkpoint
load_checkpoint({str(tmp_path)!r}, device="cpu")
print("triton" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout.splitlines() == [str([False, False, has_gpu()]), str(has_gpu())], done.stderr

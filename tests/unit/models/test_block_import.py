"""A package is hidden for as long as it must not be imported, and no longer."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from models.block_import import unimported


def test_a_hidden_package_looks_as_if_it_were_not_installed() -> None:
    with unimported("this"):
        assert importlib.util.find_spec("this") is None
    assert importlib.util.find_spec("this") is not None


def test_a_package_that_is_there_already_stays() -> None:
    with unimported("sys"):
        assert sys.modules["sys"] is sys


def test_loading_models_imports_neither_scikit_learn_nor_scipy() -> None:
    code = "import models.transformers_models, sys; sys.exit('sklearn' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0

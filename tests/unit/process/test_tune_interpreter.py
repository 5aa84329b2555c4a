"""Nothing is collected while modules are imported, and everything is afterwards."""

from __future__ import annotations

import gc

import pytest

from app.process.tune_interpreter import uncollected


def test_garbage_is_collected_again_after_imports_and_after_one_that_failed() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()

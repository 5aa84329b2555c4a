"""Whose settings `.parley/local.env` has."""

from __future__ import annotations

from pathlib import Path

from dotenv import dotenv_values

from app.local.env_file import EnvFile


def test_it_tells_whose_settings_it_replaced_also_when_it_is_written_again(tmp_path: Path) -> None:
    first, second = EnvFile(tmp_path, tmp_path / "one"), EnvFile(tmp_path, tmp_path / "two")
    first.write({"PARLEY_BROKER": "kafka://one:1"})
    assert (first.former, second.former) == (None, tmp_path / "one")
    for _ in range(2):
        second.write({"PARLEY_BROKER": "kafka://two:2"})
        assert second.former == tmp_path / "one"
    assert dotenv_values(second.path) == {"PARLEY_BROKER": "kafka://two:2"}


def test_only_its_own_instance_removes_it(tmp_path: Path) -> None:
    first, second = EnvFile(tmp_path, tmp_path / "one"), EnvFile(tmp_path, tmp_path / "two")
    first.write({})
    second.write({})
    assert not first.remove()
    assert second.remove()
    assert not second.path.exists()
    assert not second.remove()


def test_a_file_that_somebody_else_wrote_is_of_another(tmp_path: Path) -> None:
    mine = EnvFile(tmp_path, tmp_path / "one")
    mine.path.parent.mkdir()
    mine.path.write_text("PARLEY_BROKER=kafka://other:1\n")
    assert mine.is_of_another
    assert mine.former is None
    assert not mine.remove()

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.commands import parley
from app.serving.loading import LoadError
from app.settings import Settings
from app.worker import load


def checked(*arguments: str) -> Result:
    return CliRunner().invoke(parley, ["policy", "check", *arguments])


def test_every_mistake_is_a_line_and_the_exit_code_is_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('[cache]\n[guard]\npii = "masked"\n')
    for arguments in ((str(path),), ()):
        monkeypatch.setenv("PARLEY_POLICY", str(path))
        found = checked(*arguments)
        assert found.exit_code == 2
        assert found.stdout.splitlines() == [
            "cache.ttl_s: is missing",
            'guard.pii: is "masked"; valid are "off", "mask", "redact"',
        ]
        assert "2 mistakes" in found.stderr


def test_what_this_machine_does_not_have_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTSIDE_KEY", raising=False)
    path = tmp_path / "policy.toml"
    path.write_text(
        "[recall]\nturns = -1\n"
        f'[models.small]\npath = "{tmp_path}/none"\n[models.outside]\nengine = "openai"\nmodel = "m"\n'
        'urls = ["http://127.0.0.1:9/v1"]\napi_key_env = "OUTSIDE_KEY"\n'
        '[guard]\nprompt = { violence = "block" }\n'
        'moderation = { url = "https://example.com/v1", api_key_env = "OUTSIDE_KEY" }\n'
        f'[[intake]]\ntopic = "t"\nfields = {{ prompt = "x" }}\nformat = "avro"\nschema = "{tmp_path}/none.avsc"\n'
    )
    found = checked(str(path))
    assert found.exit_code == 2
    mistake, folder, key, guard_key, schema = found.stdout.splitlines()
    assert mistake == "recall: turns must be at least 0 and at most 20"
    assert folder.startswith("models.small.path: ")
    assert key == "models.outside.api_key_env: the environment has no OUTSIDE_KEY"
    assert guard_key == "guard.moderation.api_key_env: the environment has no OUTSIDE_KEY"
    assert schema == f"intake[0]: schema {tmp_path}/none.avsc: No such file or directory"


def test_a_good_file_has_none_and_no_file_is_wrong_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("")
    assert checked(str(path)).exit_code == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PARLEY_POLICY", raising=False)
    assert checked().exit_code == 2
    assert checked(str(tmp_path / "none.toml")).exit_code == 2
    path.write_text("[models")
    assert "not TOML" in checked(str(path)).stderr


def test_a_package_that_a_worker_would_lack_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.commands.policy.find_spec", lambda package: None if package == "spacy" else object())
    path = tmp_path / "policy.toml"
    path.write_text('[guard]\npii = "mask"\nprompt = { profanity = "flag" }\n')
    found = checked(str(path))
    assert found.exit_code == 2
    assert found.stdout == "guard.pii needs the package spacy: install Parley with its extra `guard`\n"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('[guard]\npii = "mask"\npii_model = "none_such"\n', "guard: pii_model: [E050] Can't find model 'none_such'"),
        ('[guard]\npii = "mask"\npii_language = "zz"\npii_entities = ["IBAN_CODE"]\n', "guard: pii_language: "),
        ('[guard]\nclassifier = "FOLDER"\nprompt = { spam = "block" }\n', "guard: classifier FOLDER: "),
        ('[models.small]\npath = "FOLDER"\n', "models.small.path: "),
        ('[models.small]\npath = "demo"\nengine = "vllm"\n', "models: engine = 'vllm' needs the package vllm"),
        (
            '[[egress]]\ntopic = "t"\nformat = "avro"\nschema = "FOLDER/a.avsc"\nfields = { a = "answer" }\n',
            "egress[0]: schema FOLDER/a.avsc: No such file",
        ),
    ],
)
def test_what_would_end_a_worker_is_a_mistake(tmp_path: Path, text: str, mistake: str) -> None:
    path, folder = tmp_path / "policy.toml", tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "none_such"}')
    path.write_text(text.replace("FOLDER", str(folder)))
    found = checked(str(path))
    assert (found.exit_code, len(found.stdout.splitlines())) == (2, 1), found.stdout
    assert found.stdout.startswith(mistake.replace("FOLDER", str(folder))), found.stdout
    settings = Settings(_env_file=None, policy=path, embedder="none", engine="paced")
    with pytest.raises(LoadError):
        load(settings, lambda _: None)

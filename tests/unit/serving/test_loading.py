"""What the settings make of engines and models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.policy.file import ModelSpec, Policy
from app.serving.loading import LoadError, ModelLoader, check_folders, load_models
from app.settings import Settings
from models.files.errors import CheckpointError


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, **{"threads": 1, "max_running": 2, **values})


def refused(**values: Any) -> str:
    with pytest.raises(LoadError) as caught:
        load_models(settings(**values), lambda _: None)
    return str(caught.value)


def test_speculation_is_off_unless_it_is_asked_for() -> None:
    assert load_models(settings(), lambda _: None).default.engine.speculation is None


def test_draft_model_guesses_for_the_model() -> None:
    models = load_models(settings(speculation="auto", draft_model="demo"), lambda _: None)
    assert models.default.engine.speculation is not None
    assert models.default.engine.speculation._draft is not None


def test_every_model_speculates_by_the_setting_and_one_of_the_same_files_is_loaded_once() -> None:
    policy = Policy(models={"same": ModelSpec(path="demo"), "small": ModelSpec(path="demo", max_running=1)})
    models = load_models(settings(speculation="lookup"), lambda _: None, policy)
    assert models.find("same") is models.default
    assert models.find("auto") is models.default
    small = models.find("small")
    assert small is not None
    assert small is not models.default
    assert all(engine.speculation is not None for engine in models.engines)
    assert len(models.engines) == 2


def test_a_wrong_option_of_a_policys_model_is_one_line_that_names_it() -> None:
    policy = Policy(models={"small": ModelSpec(path="demo", quantize="int3")})
    with pytest.raises(LoadError, match=r"policy: models\.small\.quantize: "):
        load_models(settings(), lambda _: None, policy)


def test_draft_model_is_not_loaded_for_lookup_alone() -> None:
    models = load_models(settings(speculation="lookup", draft_model="no/such"), lambda _: None)
    assert models.default.engine.speculation._draft is None


def test_the_draft_model_follows_the_settings_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, dict[str, Any]] = {}

    def load(name: str, **options: Any) -> None:
        asked[name] = options
        if name == "draft":
            raise CheckpointError("enough")

    monkeypatch.setattr("models.checkpoints.loading.load_checkpoint", load)
    models = {"model": "one", "draft_model": "draft", "speculation": "auto"}
    assert refused(**models, context_length=64, quantize="int8", trust_remote_code=True) == "enough"
    assert {name: (one["quantize"], one["remote_code"]) for name, one in asked.items()} == dict.fromkeys(
        ("one", "draft"), ("int8", True)
    )
    assert asked["one"]["context_length"] == 64


def test_draft_model_that_is_absent_is_one_line() -> None:
    assert "no-such-folder" in refused(speculation="auto", draft_model="./no-such-folder")


def test_folder_that_is_absent_is_told_before_anything_is_loaded() -> None:
    with pytest.raises(LoadError, match="there is no such folder"):
        check_folders(settings(model="/nonexistent"))


@pytest.mark.parametrize("engine", ["torch", "paced"])
@pytest.mark.parametrize("adapters", ["/nonexistent", "a", "a=/nonexistent"])
def test_adapters_that_are_absent_are_refused(adapters: str, engine: str) -> None:
    with pytest.raises(LoadError, match="PARLEY_ADAPTERS: "):
        check_folders(settings(adapters=adapters, engine=engine))


def test_adapters_that_are_there_and_no_adapters_are_taken(tmp_path: Path) -> None:
    (tmp_path / "kind").mkdir()
    (tmp_path / "kind" / "adapter_config.json").write_text("{}")
    check_folders(settings())
    check_folders(settings(adapters=f"{tmp_path}, other={tmp_path / 'kind'}"))


def test_vllm_that_is_not_installed_is_one_line_that_says_what_to_do() -> None:
    assert "extra `vllm`" in refused(engine="vllm")


def test_what_vllm_is_not_given_is_refused() -> None:
    assert "PARLEY_DRAFT_MODEL does not apply to PARLEY_ENGINE=vllm" in refused(engine="vllm", draft_model="small")


PACED = {"engine": "paced", "paced_tokens_per_s": 10.0}


def small(**options: Any) -> ModelSpec:
    return ModelSpec(**{"path": "small", "engine": "paced", **options})


def test_models_that_stay_are_not_loaded_again_and_have_their_new_names() -> None:
    loader = ModelLoader(settings(**PACED), lambda _: None)
    default, first = loader.load(Policy(models={"small": small()}))
    again, same, large = loader.load(Policy(models={"tiny": small(), "large": ModelSpec(path="large", engine="paced")}))
    assert (again.engine, same.engine) == (default.engine, first.engine)
    assert (first.names, same.names, large.names) == ({"small"}, {"tiny"}, {"large"})
    assert [one.engine for one in loader.load(Policy())] == [default.engine]


def test_a_model_that_cannot_be_loaded_changes_nothing() -> None:
    loader = ModelLoader(settings(**PACED), lambda _: None)
    default, first = loader.load(Policy(models={"small": small()}))
    with pytest.raises((LoadError, CheckpointError)):
        loader.load(Policy(models={"broken": ModelSpec(path="/no/such/folder")}))
    assert [one.engine for one in loader.load(Policy(models={"small": small()}))] == [default.engine, first.engine]


def test_stated_shares_divide_the_memory_and_the_rest_is_for_the_others() -> None:
    policy = Policy(
        models={
            "a": ModelSpec(path="demo", memory_share=0.5, max_running=1),
            "b": ModelSpec(path="demo", memory_share=0.2, max_running=2),
        }
    )
    models = load_models(settings(kv_cache_gb=0.1, max_running=3), lambda _: None, policy)
    pages = {name: models.find(name).engine.pool.pages for name in ("default", "a", "b")}
    assert pages["a"] > pages["default"] > pages["b"]
    assert pages["a"] / pages["b"] == pytest.approx(2.5, rel=0.01)


def test_a_folder_that_is_not_there_is_named_as_the_policy_names_it(tmp_path: Path) -> None:
    policy = Policy(models={"small": ModelSpec(path="/nope")})
    settings = Settings(_env_file=None, policy=tmp_path / "policy.toml")
    with pytest.raises(LoadError) as told:
        check_folders(settings, policy)
    assert str(told.value) == f"policy {tmp_path}/policy.toml: models.small.path: model /nope: there is no such folder"

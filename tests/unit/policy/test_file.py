from __future__ import annotations

from pathlib import Path

import pytest

from app.policy.file import MAX_POLICY_BYTES, NO_POLICY, PolicyError, read_policy
from app.wire.request import Priority

GOOD = """
[models.small]
path = "demo"
max_running = 4

[[routes]]
name = "fast"
when = { prompt_tokens_below = 30, tenant = ["acme"], priority = ["batch"] }
model = "small"

[[routes]]
name = "relief"
when = { first_token_p95_ms_above = 250, for_s = 10 }
until = { first_token_p95_ms_below = 150, for_s = 30 }
model = "small"
notice = "degraded"

[[routes]]
name = "tone-test"
experiment = "tone"
arms = [{ model = "default", weight = 90 }, { model = "small", weight = 10 }]
"""

ARMS = """[models.small]
path = 'demo'
[[routes]]
name = 'a'
experiment = 'e'
arms = [{model = 'default', weight = 1}, {model = 'small', weight = 0}]
"""
TWICE = """
[[routes]]
name = "a"
experiment = "e"
arms = [{model = "default", weight = 1}, {model = "default", weight = 2}]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text)
    return path


def test_a_policy_is_read_in_the_order_of_its_routes(tmp_path: Path) -> None:
    policy = read_policy(write(tmp_path, GOOD))
    assert [route.name for route in policy.routes] == ["fast", "relief", "tone-test"]
    assert policy.routes[0].when.priority == (Priority.BATCH,)
    assert policy.models["small"].options == {"max_running": 4}
    assert policy.routes[2].models == ("default", "small")


def test_without_a_file_there_is_no_policy() -> None:
    assert read_policy(None) is NO_POLICY


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[models", "not TOML"),
        ("[guard]\npii = 'mask'\npii_entities = ['SHOE_SIZE']", "there is no entity 'SHOE_SIZE'"),
        ("[guard]\npii = 'hide'", "Invalid enum value 'hide'"),
        ("[guard]\nprompts = {profanity = 'block'}", "unknown field `prompts`"),
        ("[prices.small]\nprompt = -1\nanswer = 2", "prices.small: a price must be a number of at least 0"),
        ("[recall]\nturns = 21", "recall: turns must be at least 0 and at most 20"),
        ("[recall]\nbudget_ms = 0", "recall: budget_ms must be above 0"),
        ("[models.a]\npath = 'demo'\nmemory_share = 1.5", "models.a: memory_share is for engine = 'torch', above 0"),
        ("[models.a]\npath = 'demo'\nmemory_share = 0.5\nkv_cache_gb = 1", "memory_share and kv_cache_gb exclude"),
        (
            "[models.a]\npath = 'demo'\nmemory_share = 0.5\n[models.b]\npath = 'demo'\nmemory_share = 0.5",
            "models: the memory_shares leave nothing for the default model",
        ),
        ("[cache]\nttl_s = 0", "cache: ttl_s and max_mb must be above 0"),
        ("[cache]\nttl_s = 30\nscope = 'world'", "Invalid enum value 'world'"),
        ("[models.a]\npath = 3", "Expected `str | null`, got `int`"),
        ("[models.a]\npath = 'demo'\nspeed = 3", "unknown field `speed`"),
        ("[models.a]\nquantize = 'int8'", "models.a: needs a path"),
        ("[models.a]\npath = 'demo'\nurls = ['http://a']", "models.a: urls is for engine = 'openai'"),
        ("[models.a]\nengine = 'openai'\nmodel = 'm'", "needs urls and model"),
        ("[models.a]\nengine = 'openai'\nmodel = 'm'\nurls = ['a:80']", "must begin with http"),
        (
            "[models.a]\nengine = 'openai'\nmodel = 'm'\nurls = ['http://a']\nquantize = 'int8'",
            "quantize does not apply",
        ),
        ("[models.a]\nengine = 'openai'\nmodel = 'm'\nurls = ['http://a']\nsilence_s = -1", "a time must be above 0"),
        ("[fallback]\nchain = ['default']", "fallback: chain needs at least two models"),
        ("[fallback]\nchain = ['default', 'other']", "fallback: there is no model 'other'"),
        ("[fallback]\nfailures = 0", "fallback: failures, window_s and retry_s must be above 0"),
        ("[models.default]\npath = 'demo'", "models.default: this name has a meaning of its own"),
        ("[models.auto]\npath = 'demo'", "models.auto: this name has a meaning of its own"),
        ("[[routes]]\nname = 'a'", "routes[0] (a): needs either model, or experiment and arms"),
        ("[[routes]]\nname = 'a'\nexperiment = 'e'\nmodel = 'default'", "needs either model"),
        ("[[routes]]\nname = 'a'\nmodel = 'other'", "there is no model 'other'; there are default"),
        (
            "[[routes]]\nname = 'a'\nmodel = 'default'\n[[routes]]\nname = 'a'\nmodel = 'default'",
            "routes[1] (a): another",
        ),
        ("[[routes]]\nname = 'a'\nmodel = 'default'\nuntil = {queue_below = 3}", "until needs a condition about load"),
        ("[[routes]]\nname = 'a'\nmodel = 'default'\nwhen = {queue_above = 3, for_s = -1}", "for_s must be at least 0"),
        ("[[routes]]\nname = 'a'\nmodel = 'default'\nnotice = 'cached'", "Invalid enum value 'cached'"),
        ("[[routes]]\nname = 'a'\nexperiment = 'e'\narms = [{model = 'default', weight = -1}]", "at least 0"),
        ("[[routes]]\nname = 'a'\nexperiment = 'e'\narms = [{model = 'default', weight = nan}]", "at least 0"),
        ("[[routes]]\nname = 'a'\nexperiment = 'e'\narms = [{model = 'default', weight = 0}]", "all weights are 0"),
        (ARMS + "shadow = 1.5", "shadow is a share from 0 to 1"),
        (ARMS + "retreat = {arm = 'other'}", "retreat: arm must be one of several arms"),
        (ARMS + "retreat = {arm = 'default'}", "and another one needs a weight"),
        (
            ARMS.replace("0}", "1}") + "retreat = {arm = 'small', more_slow = 1}",
            "more_slow must be above 0 and below 1",
        ),
        (TWICE, "two arms have the same model"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file_and_the_place(tmp_path: Path, text: str, why: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(PolicyError) as caught:
        read_policy(path)
    assert str(caught.value).startswith(f"policy {path}: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_absent_binary_or_huge_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No such file"):
        read_policy(tmp_path / "absent.toml")
    path = tmp_path / "policy.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="not TOML"):
        read_policy(path)
    path.write_bytes(b"#" * (MAX_POLICY_BYTES + 1))
    with pytest.raises(PolicyError, match="larger than"):
        read_policy(path)

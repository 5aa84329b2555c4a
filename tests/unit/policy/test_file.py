from __future__ import annotations

from pathlib import Path

import pytest

from app.policy.file import MAX_POLICY_BYTES, NO_POLICY, ModelSpec, PolicyError, mistakes_in, read_policy
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
        ("[guard]\npii = 'hide'", 'guard.pii: is "hide"; valid are "off", "mask", "redact"'),
        ("[guard]\nprompts = {profanity = 'block'}", "guard.prompts: is not known; did you mean 'prompt'? There are"),
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
        ("[cache]\nttl_s = 30\nscope = 'world'", 'cache.scope: is "world"; valid are "user", "tenant"'),
        ("[models.a]\npath = 3", "models.a.path: expected `str`, got `int`"),
        ("[models.a]\npath = 'demo'\nspeed = 3", "models.a.speed: is not known; "),
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
        ("[fallback]\nchain = ['default', 'other']", "fallback.chain: there is no model 'other'; there are default"),
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
        (
            "[[routes]]\nname = 'a'\nmodel = 'default'\nnotice = 'cached'",
            'routes[0] (a).notice: is "cached"; valid are "degraded"',
        ),
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


def test_all_mistakes_are_found_at_once(tmp_path: Path) -> None:
    text = """
[models.small]
pth = "demo"
[models.default]
path = "demo"
[models.outside]
engine = "openai"
[guard]
pii = "masked"
[[routes]]
name = "a"
model = "large"
[[routes]]
when = { priority = ["urgent"] }
model = "default"
[tenants.acme]
requests_per_min = "many"
[cache]
[prices]
x = 1
"""
    assert mistakes_in(write(tmp_path, text)) == [
        f"models.small.pth: is not known; did you mean 'path'? There are {', '.join(ModelSpec.__struct_fields__)}",
        "models.outside: engine = 'openai' needs urls and model",
        "routes[1].name: is missing",
        'routes[1].when.priority[0]: is "urgent"; valid are "interactive", "standard", "batch"',
        "cache.ttl_s: is missing",
        "prices.x: must be a table",
        "tenants.acme.requests_per_min: expected `int`, got `str`",
        'guard.pii: is "masked"; valid are "off", "mask", "redact"',
        "models.default: this name has a meaning of its own; choose another",
        "routes[0] (a): there is no model 'large'; there are default, outside, small",
    ]
    with pytest.raises(PolicyError, match=r"models\.small\.pth.* \(and 9 more: `parley policy check` shows all\)"):
        read_policy(tmp_path / "policy.toml")
    assert mistakes_in(write(tmp_path, GOOD)) == []


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 100_000, "a = " + "9" * 5000, "models = 3", "routes = {}", "models = []"]
)
def test_whatever_the_file_holds_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy(write(tmp_path, text))
    assert "\n" not in str(caught.value)

"""What is wrong within the tables of the policy file, each mistake in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.policy.check import read_policy
from app.policy.file import PolicyError
from app.settings import Settings

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
        ("[cache]\nttl_s = 0", "cache: ttl_s must be above 0"),
        ("[cache]\nttl_s = 30\nscope = 'world'", 'cache.scope: is "world"; valid are "user", "tenant"'),
        ("[models.a]\npath = 3", "models.a.path: expected `str`, got `int`"),
        ("[models.a]\npath = 'demo'\nspeed = 3", "models.a.speed: is not known; "),
        ("[models.a]\nquantize = 'int8'", "models.a: needs a path"),
        ("[models.a]\npath = 'demo'\nurls = ['http://a']", "models.a: urls is for engine = 'openai'"),
        ("[models.a]\nengine = 'openai'\nmodel = 'm'", "needs urls and model"),
        (
            "[models.a]\nengine = 'openai'\nmodel = 'm'\nurls = ['a:80']",
            "urls[0] is no URL that begins with http://",
        ),
        (
            "[models.a]\nengine = 'openai'\nmodel = 'm'\nurls = ['http://a']\nquantize = 'int8'",
            "quantize does not apply",
        ),
        ("[models.a]\nengine = 'openai'\nmodel = 'm'\nurls = ['http://a']\nsilence_s = -1", "a time must be above 0"),
        ("[fallback]\nchain = ['default']", "fallback: chain needs at least two models"),
        ("[fallback]\nchain = ['default', 'other']", "fallback.chain: there is no model 'other'; there are default"),
        ("[fallback]\nfailures = 0", "fallback: failures must be above 0"),
        ("[models.default]\npath = 'demo'", "models.default: this name has a meaning of its own"),
        (f"[models.{'a' * 999}]\npath = 'demo'", "a name must have 1-"),
        ("[models.a]\nengine = 'vllm'\npath = 'demo'\nquantize = 'int8'", "quantize does not apply to engine = 'vllm'"),
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
        (ARMS + "shadow = 0.5", "routes[0] (a).shadow: is not known"),
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
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(PolicyError) as caught:
        read_policy(Settings(_env_file=None, policy=path))
    assert str(caught.value).startswith(f"policy {path}: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)

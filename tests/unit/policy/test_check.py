from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from app.policy.check import MAX_POLICY_BYTES, checked, read_policy
from app.policy.file import NO_POLICY, ModelSpec, Policy, PolicyError
from app.settings import Settings, load_settings
from app.settings.kafka import TopicName
from app.settings.sources import SettingsError
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


def settings(policy: Path | None = None, **given: object) -> Settings:
    return Settings(_env_file=None, policy=policy, **given)


def found(folder: Path, text: str, **given: object) -> list[str]:
    return checked(write(folder, text), settings(**given))[1]


def write(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text)
    return path


def test_a_policy_is_read_in_the_order_of_its_routes(tmp_path: Path) -> None:
    policy = read_policy(settings(write(tmp_path, GOOD)))
    assert [route.name for route in policy.routes] == ["fast", "relief", "tone-test"]
    assert policy.routes[0].when.priority == (Priority.BATCH,)
    assert policy.models["small"].options == {"max_running": 4}
    assert policy.routes[2].models == ("default", "small")


def test_without_a_file_there_is_no_policy() -> None:
    assert read_policy(settings()) is NO_POLICY


def test_a_file_that_is_absent_binary_or_huge_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No such file"):
        read_policy(settings(tmp_path / "absent.toml"))
    path = tmp_path / "policy.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="not TOML"):
        read_policy(settings(path))
    path.write_bytes(b"#" * (MAX_POLICY_BYTES + 1))
    with pytest.raises(PolicyError, match="larger than"):
        read_policy(settings(path))


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
    assert found(tmp_path, text) == [
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
        read_policy(settings(tmp_path / "policy.toml"))
    assert found(tmp_path, GOOD) == []


HIDING = """
[models.odd]
path = 7
context_length = -4
device = "gpu"
max_running = -1
[models.odd.x]
[models.outside]
engine = "openai"
model = "m"
urls = ["http://a:99999/v1"]
connect_s = 0.0
context_length = 0
[[routes]]
when = { priority = ["urgent"], for_s = -1 }
experiment = "e"
arms = [{ model = "default", weight = "much" }, { model = "odd", weight = -1 }]
shadow = 7
[[routes]]
name = "b"
model = "big"
retreat = { arm = "b", more_errors = 2, more_slow = "x" }
[fallback]
chain = ["default", "gone"]
failures = "x"
window_s = 0
[tenants.acme]
priority = "urgent"
requests_per_min = -5
tokens_per_min = "x"
cost_per_month = -1
[guard]
pii = "hide"
pii_entities = ["SHOE"]
prompt = { injection = "blok" }
timeout_s = 0
moderation = { url = "a:80", modl = "m" }
[[intake]]
topic = "a b"
format = "xml"
fields = { promt = "x", prompt = "y" }
constants = { max_tokens = -4, temprature = 1, temperature = 3.0, stop = 7 }
[[intake]]
fields = { prompt = "x" }
tenant = "a/b"
[[egress]]
per = "turn"
topic = "turns"
fields = { a = "anser" }
[[egress]]
topic = 3
intake = "nobody"
fields = {}
"""


def test_no_mistake_hides_another(tmp_path: Path) -> None:
    beginnings = [line.split(";")[0] for line in found(tmp_path, HIDING)]
    assert beginnings == [
        "models.odd.x: is not known",
        "models.odd.path: expected `str`, got `int`",
        "models.odd: context_length must be greater than or equal to 0",
        "models.odd: device must match pattern '^(auto|(cpu|cuda|mps|xpu)(:\\d+)?)$'",
        "models.odd: max_running must be greater than or equal to 1",
        "models.outside: urls[0] is no URL that begins with http:// or https:// and names a host",
        "models.outside: context_length must be above 0 for engine = 'openai'",
        "models.outside: a time must be above 0: connect_s",
        "routes[0].shadow: is not known",
        "routes[0].name: is missing",
        'routes[0].when.priority[0]: is "urgent"',
        "routes[0].when: for_s must be at least 0",
        "routes[0].arms[0].weight: expected `float`, got `str`",
        "routes[0].arms[1]: a weight must be a number of at least 0",
        "routes[1] (b).retreat.more_slow: expected `float`, got `str`",
        "routes[1] (b).retreat: more_errors must be above 0 and below 1",
        "fallback.failures: expected `int`, got `str`",
        "fallback: window_s must be above 0",
        'tenants.acme.priority: is "urgent"',
        "tenants.acme.tokens_per_min: expected `int`, got `str`",
        "tenants.acme: a limit must be a number of at least 0: requests_per_min",
        "tenants.acme: a limit must be a number of at least 0: cost_per_month",
        'guard.pii: is "hide"',
        'guard.prompt.injection: is "blok"',
        "guard.moderation.modl: is not known",
        "guard.moderation: the url is no URL that begins with http:// or https:// and names a host",
        "guard: pii_entities: there is no entity 'SHOE'",
        "guard: timeout_s must be above 0",
        "intake[0]: topic: is no name of a Kafka topic",
        "intake[0]: fields: 'promt' is not known",
        "intake[0]: constants: 'temprature' is not known",
        'intake[0]: format: is "xml"',
        "intake[0]: constants: max_tokens: must be at least 1",
        "intake[0]: constants: temperature: must be at most 2",
        "intake[0]: constants: Expected `str | array | null`, got `int` - at `$.stop`",
        "intake[1].topic: is missing",
        "intake[1]: user_id and tenant must not be empty, and a tenant has no slash",
        'egress[0].per: is "turn"',
        "egress[1].topic: expected `str`, got `int`",
        "egress[1]: fields: is empty",
        "fallback.chain: there is no model 'gone'",
        "routes[1] (b): there is no model 'big'",
        "egress[0].topic: 'turns' is a topic of Parley's own",
    ]


@pytest.mark.parametrize("section", ["intake", "egress"])
@pytest.mark.parametrize("own", TopicName)
def test_every_own_topic_is_refused_by_its_name_in_kafka(tmp_path: Path, section: str, own: TopicName) -> None:
    fields = '{ prompt = "x" }' if section == "intake" else '{ a = "answer" }'
    text = f'[[{section}]]\nfields = {fields}\ntopic = "t-{own}"\n'
    hint = "PARLEY_TOPIC_PREFIX gives its topics other names"
    refusal = [f"{section}[0].topic: 't-{own}' is a topic of Parley's own; {hint}"]
    assert found(tmp_path, text, topic_prefix="t-") == refusal
    assert found(tmp_path, text) == []
    assert found(tmp_path, text.replace("t-", "")) == [refusal[0].replace("t-", "")]
    assert found(tmp_path, text.replace("t-", ""), topic_prefix="t-") == []


def test_an_option_is_judged_as_the_setting_of_its_name_whatever_the_environment_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEVICE", "bad")
    monkeypatch.setenv("PARLEY_DEVICE", "bad")
    for name, given in {"context_length": -4, "max_running": 0, "kv_cache_gb": -1.0, "dtype": "int3"}.items():
        monkeypatch.setenv(f"PARLEY_{name.upper()}", str(given))
        with pytest.raises(SettingsError, match=f"PARLEY_{name.upper()}"):
            load_settings()
        monkeypatch.delenv(f"PARLEY_{name.upper()}")
    monkeypatch.delenv("PARLEY_DEVICE")
    for value in ("context_length = -4", "max_running = 0", "kv_cache_gb = nan", "dtype = 'int3'", "tool_format = 'x'"):
        for engine in ("torch", "vllm", "paced"):
            (line,) = found(tmp_path, f"[models.a]\npath = 'demo'\nengine = '{engine}'\n{value}\n")
            assert line.startswith(f"models.a: {value.split()[0]} must be ")
    assert found(tmp_path, "[models.a]\npath = 'demo'\ndevice = 'cuda:1'\ntool_format = ''\n") == []


def test_constants_may_not_be_longer_than_a_prompt(tmp_path: Path) -> None:
    text = '[[intake]]\ntopic = "t"\nfields = { user_id = "u" }\nconstants = { prompt = "12345" }\n'
    assert found(tmp_path, text, max_prompt_bytes=5) == []
    refusal = "intake[0].constants: the prompt has 5 bytes, the limit is 4"
    assert found(tmp_path, text, max_prompt_bytes=4) == [refusal]


@pytest.mark.parametrize(
    "text", [GOOD.replace("small", "a").replace('[models.a]\npath = "demo"\nmax_running = 4', ""), ""]
)
def test_what_is_read_is_what_msgspec_reads(tmp_path: Path, text: str) -> None:
    text += "[models.a]\npath = 'demo'\nkv_cache_gb = 1\n[guard]\nprompt = {profanity = 'block'}\n[cache]\nttl_s = 3\n"
    read = read_policy(settings(write(tmp_path, text)))
    assert read == msgspec.convert(tomllib.loads(text), Policy)
    assert isinstance(read.models["a"].kv_cache_gb, float)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 100_000, "a = " + "9" * 5000, "models = 3", "routes = {}", "models = []"]
)
def test_whatever_the_file_holds_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy(settings(write(tmp_path, text)))
    assert "\n" not in str(caught.value)

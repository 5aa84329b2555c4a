"""Settings are checked when they are read, and what is wrong with them is one line that keeps secrets."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from app.faust.group import options
from app.settings import Settings, UnknownSettingWarning, load_settings
from app.settings.names import PREFIX, RENAMED
from app.settings.sources import SettingsError


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(monkeypatch: pytest.MonkeyPatch, **values: str) -> str:
    for name, value in values.items():
        monkeypatch.setenv(f"PARLEY_{name}", value)
    with pytest.raises(SettingsError) as reported:
        load_settings()
    (line,) = str(reported.value).splitlines()
    return line


def test_the_environment_wins_over_dot_env_and_that_over_the_local_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".parley").mkdir()
    (tmp_path / ".parley/local.env").write_text("PARLEY_PARTITIONS=1\nPARLEY_MODEL=local\nPARLEY_APP_ID=local\n")
    (tmp_path / ".env").write_text("PARLEY_PARTITIONS=2\nPARLEY_MODEL=dotenv\n")
    monkeypatch.setenv("PARLEY_PARTITIONS", "3")
    read = load_settings()
    assert (read.partitions, read.model, read.app_id) == (3, "dotenv", "local")


@pytest.mark.parametrize(
    ("given", "servers"),
    [
        ("localhost:9092", ("localhost:9092",)),
        ("kafka_1:9093,kafka-2.example.com:9094", ("kafka_1:9093", "kafka-2.example.com:9094")),
        ("kafka://one:1;kafka://two:2", ("one:1", "two:2")),
        ("kafka://one:1, two:2", ("one:1", "two:2")),
        ("one,[::1]:9093", ("one:9092", "[::1]:9093")),
    ],
)
def test_brokers_are_named_as_for_every_tool_of_kafka(
    monkeypatch: pytest.MonkeyPatch, given: str, servers: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PARLEY_BROKER", given)
    settings = load_settings()
    assert settings.cluster.servers == servers
    assert options(settings)["broker"] == ";".join(f"kafka://{server}" for server in servers)


OAUTH_LOGIN = {"KAFKA_SASL_MECHANISM": "OAUTHBEARER", "KAFKA_USERNAME": "id", "KAFKA_PASSWORD": "secret"}


@pytest.mark.parametrize(
    ("values", "reported"),
    [
        ({"PARTITIONS": "0"}, "PARLEY_PARTITIONS=0"),
        ({"BROKER": ""}, "PARLEY_BROKER=: must be host:port"),
        ({"BROKER": "http://localhost:9092"}, "must be host:port, or several with a comma"),
        ({"BROKER": "one:9092,"}, "must be host:port"),
        ({"BROKER": "one:9092 two:9092"}, "must be host:port"),
        ({"BROKER": "one:65536"}, "must be host:port"),
        ({"TOKENS_RETENTION_S": "60"}, "at least PARLEY_REQUESTS_RETENTION_S"),
        ({"KAFKA_SASL_MECHANISM": "PLAIN"}, "needs PARLEY_KAFKA_USERNAME and PARLEY_KAFKA_PASSWORD"),
        ({"KAFKA_USERNAME": "parley"}, "needs PARLEY_KAFKA_SASL_MECHANISM"),
        ({"KAFKA_SASL_MECHANISM": "GSSAPI"}, "'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512' or 'OAUTHBEARER'"),
        ({**OAUTH_LOGIN}, "PARLEY_KAFKA_SASL_MECHANISM=OAUTHBEARER and PARLEY_KAFKA_OAUTH_URL need each other"),
        ({**OAUTH_LOGIN, "KAFKA_OAUTH_URL": "http://example.com/token"}, "must begin with https://"),
        ({"KAFKA_TLS": "true", "KAFKA_CA_FILE": "nowhere.pem"}, "PARLEY_KAFKA_CA_FILE=nowhere.pem: there is no"),
        ({"KAFKA_CERT_FILE": ".env"}, "needs PARLEY_KAFKA_TLS=true"),
        ({"TOOL_FORMAT": "harmony"}, "PARLEY_TOOL_FORMAT=harmony: must be empty or one of hermes, qwen_coder, glm45"),
        ({"VLLM_ARGS": "[1]"}, "must be a JSON object"),
        ({"VLLM_ARGS": "{"}, "PARLEY_VLLM_ARGS={: must be a JSON object"),
    ],
)
def test_a_wrong_value_is_told_with_its_name(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], reported: str
) -> None:
    assert reported in refusal(monkeypatch, **values)


def test_an_empty_path_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_KAFKA_CA_FILE", "")
    assert load_settings().kafka_ca_file is None


def test_a_secret_is_neither_shown_nor_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("PARLEY_KAFKA_USERNAME", "parley")
    monkeypatch.setenv("PARLEY_KAFKA_PASSWORD", "do-not-tell")
    read = load_settings()
    assert "do-not-tell" not in f"{read!r} {read.cluster!r}"
    assert "do-not-tell" not in refusal(monkeypatch, PARTITIONS="many")


def test_an_unknown_name_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_PARTITION", "3")
    with pytest.warns(UnknownSettingWarning, match="PARLEY_PARTITION is not a setting"):
        load_settings()


def test_what_can_be_asked_is_every_model_and_adapter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "polite").mkdir()
    (tmp_path / "polite" / "adapter_config.json").touch()
    monkeypatch.setenv("PARLEY_ADAPTERS", f"acme/terse=somewhere,{tmp_path}")
    assert load_settings().models == ["demo", "acme/terse", "polite"]
    assert "a name consists of letters" in refusal(monkeypatch, ADAPTERS="a b=somewhere")


def test_a_secret_can_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("a secret of 32 bytes at the least\n")
    (tmp_path / ".env").write_text("PARLEY_JWT_SECRET_FILE=elsewhere\n")
    monkeypatch.setenv("PARLEY_JWT_SECRET_FILE", "secret")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_settings().jwt_secret == "a secret of 32 bytes at the least"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"JWT_SECRET_FILE": "missing"}, "PARLEY_JWT_SECRET_FILE=missing: No such file or directory"),
        ({"JWT_SECRET_FILE": "missing", "JWT_SECRET": "x"}, "are both set: set one of them"),
        ({"GATEWAY_API_KEYS_FILE": "."}, "PARLEY_GATEWAY_API_KEYS_FILE=.: Is a directory"),
    ],
)
def test_a_secret_file_that_cannot_be_used_is_named(
    values: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert message in refusal(monkeypatch, **values)


def test_only_secrets_have_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_PARTITIONS_FILE", "somewhere")
    with pytest.warns(UnknownSettingWarning, match="PARLEY_PARTITIONS_FILE"):
        load_settings()


@pytest.mark.parametrize(
    ("old", "field", "value"),
    [
        ("PARLEY_HISTORY_TURNS", "conversation_turns", 3),
        ("PARLEY_HISTORY_TTL_S", "index_ttl_s", 0.0),
        ("PARLEY_FINISH_TIMEOUT_S", "commit_timeout_s", 7.0),
        ("PARLEY_GATEWAY_DRAIN_S", "drain_s", 2.0),
    ],
)
def test_an_old_name_counts_with_a_warning_that_has_the_new_one(
    monkeypatch: pytest.MonkeyPatch, old: str, field: str, value: float
) -> None:
    monkeypatch.setenv(old, str(value).removesuffix(".0"))
    with pytest.warns(UnknownSettingWarning, match=f"{old} is now {RENAMED[old]}"):
        assert getattr(load_settings(), field) == value


def test_the_new_name_wins_wherever_it_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("PARLEY_CONVERSATION_TURNS=4\n")
    monkeypatch.setenv("PARLEY_HISTORY_TURNS", "3")
    with pytest.warns(UnknownSettingWarning):
        assert load_settings().conversation_turns == 4


def test_an_empty_old_value_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_HISTORY_TTL_S", "")
    with pytest.warns(UnknownSettingWarning):
        assert load_settings().index_ttl == 2592000


def test_an_old_name_is_no_setting() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    assert not known & RENAMED.keys()
    assert set(RENAMED.values()) <= known

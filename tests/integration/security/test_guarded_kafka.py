"""Workers and commands on a Kafka with authentication."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.kafka.clients import KafkaSetupError, KafkaUnusableError, partitions_of
from app.kafka.topics import create_topics
from app.settings import Settings
from tests.environment import parley
from tests.faults.worker_process import WorkerProcess
from tests.integration.security.guarded_kafka import PASSWORD, USER, GuardedKafka
from tests.integration.security.token_server import TokenServer, token_server
from tests.integration.worker.client import Client
from tests.integration.worker.test_refusals import refused
from tests.integration.worker.test_watch import is_watched, until

Guarded = Callable[..., Settings]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    guarded = GuardedKafka(tmp_path_factory.mktemp("guarded") / "kafka")
    try:
        guarded.node.start()
        yield guarded
    finally:
        guarded.node.kill()


@pytest.fixture
def guarded(kafka: GuardedKafka, tmp_path: Path) -> Guarded:
    def settings(**values: Any) -> Settings:
        usual = {"broker": kafka.by_login, "kafka_tls": True, "kafka_ca_file": kafka.ca_file, "partitions": 2}
        login = {"kafka_sasl_mechanism": "SCRAM-SHA-512", "kafka_username": USER, "kafka_password": PASSWORD}
        worker = {"data_dir": tmp_path / "data", "engine": "paced", "paced_tokens_per_s": 200, "embedder": "none"}
        return Settings(_env_file=None, **{**usual, **login, **worker, **values})

    return settings


async def test_a_worker_that_logs_in_answers(guarded: Guarded, tmp_path: Path) -> None:
    settings = guarded(topic_prefix="in-")
    await create_topics(settings)
    with WorkerProcess(settings, tmp_path / "worker.log") as worker:
        async with Client(settings) as client:
            user = client.user()
            answer = await client.answer(user, await client.ask(user, "one two three"))
            assert answer.text
            assert [turn.answer for turn in await client.turns_of(user, 1)] == [answer.text]
        assert worker.stop() == 0
    assert PASSWORD not in worker.log.read_text()


@pytest.mark.parametrize("way", ["SCRAM-SHA-512", "OAUTHBEARER", "certificate"])
async def test_a_watcher_logs_in_as_its_worker_does(
    kafka: GuardedKafka, guarded: Guarded, oauth: TokenServer, tmp_path: Path, way: str
) -> None:
    values: dict[str, Any] = {"kafka_sasl_mechanism": way}
    if way == "OAUTHBEARER":
        values["kafka_oauth_url"] = oauth.url
    elif way == "certificate":
        none = dict.fromkeys(("kafka_sasl_mechanism", "kafka_username", "kafka_password"), "")
        values = {"broker": kafka.by_certificate, "kafka_cert_file": kafka.client_cert, **none}
    settings = guarded(topic_prefix=f"watched-{way}-", session_timeout_s=600.0, **values)
    await create_topics(settings)
    with WorkerProcess(settings, tmp_path / "worker.log") as worker:
        worker.wait_owning(2)
        until(lambda: is_watched(worker))
        worker.kill()
        until(lambda: "the group goes on without it" in worker.log.read_text())
    assert PASSWORD not in worker.log.read_text()


async def test_a_wrong_password_is_told_in_one_line(guarded: Guarded, tmp_path: Path) -> None:
    line = refused(guarded(kafka_password="another"), tmp_path)
    assert f"rejects the login of {USER!r}" in line
    assert "another" not in line


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_clients_log_in(guarded: Guarded, mechanism: str) -> None:
    settings = guarded(kafka_sasl_mechanism=mechanism, topic_prefix=f"{mechanism}-")
    await create_topics(settings)
    assert (await partitions_of(settings.cluster, [settings.topic("tokens")])) == {settings.topic("tokens"): 2}


@pytest.fixture
def oauth() -> Iterator[TokenServer]:
    with token_server(USER, PASSWORD) as server:
        yield server


async def test_a_worker_with_tokens_answers(guarded: Guarded, oauth: TokenServer, tmp_path: Path) -> None:
    settings = guarded(topic_prefix="oauth-", kafka_sasl_mechanism="OAUTHBEARER", kafka_oauth_url=oauth.url)
    await create_topics(settings)
    with WorkerProcess(settings, tmp_path / "worker.log") as worker:
        async with Client(settings) as client:
            user = client.user()
            assert (await client.answer(user, await client.ask(user, "one two three"))).text
        assert worker.stop() == 0
    log = worker.log.read_text()
    assert PASSWORD not in log
    assert oauth.token().partition(".")[0] not in log


async def test_a_secret_that_the_token_server_refuses_is_told_in_one_line(
    guarded: Guarded, oauth: TokenServer, tmp_path: Path
) -> None:
    login = {"kafka_sasl_mechanism": "OAUTHBEARER", "kafka_oauth_url": oauth.url, "kafka_password": "another"}
    line = refused(guarded(**login), tmp_path)
    assert f"the token server {oauth.url} answers with status 401" in line
    assert "another" not in line


async def test_a_certificate_opens_what_no_certificate_does(kafka: GuardedKafka, guarded: Guarded) -> None:
    no_login = {"kafka_sasl_mechanism": "", "kafka_username": "", "kafka_password": ""}
    stranger = guarded(broker=kafka.by_certificate, **no_login)
    with pytest.raises(KafkaUnusableError):
        await partitions_of(stranger.cluster, [])
    known = guarded(broker=kafka.by_certificate, kafka_cert_file=kafka.client_cert, **no_login)
    assert await partitions_of(known.cluster, []) == {}


NO_LOGIN = {"kafka_sasl_mechanism": "", "kafka_username": "", "kafka_password": ""}
PLAIN = {"kafka_tls": False, "kafka_ca_file": None}


@pytest.mark.parametrize(
    ("port", "values", "told"),
    [
        ("plain", NO_LOGIN, "speaks no TLS: unset PARLEY_KAFKA_TLS"),
        ("plain", PLAIN, "asks for no login there: unset PARLEY_KAFKA_SASL_MECHANISM"),
        ("login", NO_LOGIN, "asks for a login: set PARLEY_KAFKA_SASL_MECHANISM (PLAIN, SCRAM-SHA-512, OAUTHBEARER)"),
        ("login", PLAIN, "speaks TLS: set PARLEY_KAFKA_TLS=true"),
        ("login", {"kafka_sasl_mechanism": "SCRAM-SHA-256"}, "knows no login by SCRAM-SHA-256"),
        ("login", {"kafka_username": "stranger"}, "rejects the login of 'stranger'"),
        ("mutual", NO_LOGIN, "without a certificate of the client: set PARLEY_KAFKA_CERT_FILE"),
    ],
)
async def test_a_port_of_another_kind_is_told_with_the_setting_to_change(
    kafka: GuardedKafka, guarded: Guarded, port: str, values: dict[str, Any], told: str
) -> None:
    broker = {"plain": kafka.node.uri, "login": kafka.by_login, "mutual": kafka.by_certificate}[port]
    with pytest.raises(KafkaSetupError) as wrong:
        await partitions_of(guarded(broker=broker, **values).cluster, [])
    assert told in str(wrong.value)
    assert PASSWORD not in str(wrong.value)


async def test_an_authority_that_is_not_trusted_is_told_as_such(guarded: Guarded) -> None:
    with pytest.raises(KafkaUnusableError, match="TLS with Kafka"):
        await partitions_of(guarded(kafka_ca_file=None).cluster, [])


async def test_commands_log_in_too(guarded: Guarded, tmp_path: Path) -> None:
    settings = guarded(topic_prefix="command-")
    ended = parley(settings, tmp_path, "topics", "create")
    assert ended.returncode == 0, ended.stderr
    assert "command-tokens" in ended.stdout

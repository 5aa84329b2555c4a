"""TLS and client certificates of the gateway's public port."""

from __future__ import annotations

import asyncio
import json
import re
import socket as sockets
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from websockets.asyncio.client import connect

from app.settings import Settings
from tests.environment import environment_of, parley
from tests.integration.gateway.gateway_process import ROOT
from tests.with_constants import command_with

KEY = "the-key-of-nina-1"


@contextmanager
def gateway(
    settings: Settings, folder: Path, constants: Mapping[str, object] | None = None, **values: Any
) -> Iterator[str]:
    """The address that the gateway prints."""
    settings = settings.model_copy(update={"gateway_api_keys": f"{KEY}=nina", "gateway_metrics_port": 0, **values})
    command = [str(Path(sys.executable).with_name("parley")), "gateway", "--port", "0"]
    environment = environment_of(settings)
    if constants:
        command = command_with(constants, "parley", *command[1:])
        environment["PYTHONPATH"] = str(ROOT)
    with (folder / "gateway.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=folder, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"the gateway is at (\S+)\n", line)
        assert found is not None, (folder / "gateway.log").read_text()
        yield found[1]
    finally:
        process.terminate()
        process.wait(120)
        if process.stdout is not None:
            process.stdout.close()


def files_of(ca: trustme.CA, folder: Path, name: str) -> dict[str, Path]:
    issued = ca.issue_cert(name, "127.0.0.1")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    return {"gateway_tls_cert": certificate, "gateway_tls_key": key}


def trusting(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


async def test_the_port_speaks_tls_alone(settings: Settings, tmp_path: Path) -> None:
    ca = trustme.CA()
    with gateway(settings, tmp_path, **files_of(ca, tmp_path, "parley")) as address:
        assert address.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(base_url=address, verify=trusting(ca), timeout=60) as http:
            assert (await http.get("/healthz")).status_code == 200
            sent = await http.post("/v1/requests", json={"prompt": "hello"}, headers={"Authorization": f"Bearer {KEY}"})
            assert sent.status_code == 202
        headers = {"Authorization": f"Bearer {KEY}"}
        secure = address.replace("https", "wss")
        async with connect(f"{secure}/v1/ws", ssl=trusting(ca), additional_headers=headers, open_timeout=120) as socket:
            await socket.send(json.dumps({"type": "ask", "ref": "1", "prompt": "hello"}))
            assert json.loads(await socket.recv())["type"] == "asked"
        async with httpx.AsyncClient(timeout=60) as stranger:
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await stranger.get(f"{address}/healthz")
            with pytest.raises(httpx.TransportError):
                await stranger.get(f"{address.replace('https', 'http')}/healthz")


def serial(address: str, ca: trustme.CA) -> int:
    """Of the certificate that a new connection gets."""
    host, port = address.removeprefix("https://").split(":")
    plain = sockets.create_connection((host, int(port)), 60)
    with plain, trusting(ca).wrap_socket(plain, server_hostname=host) as one:
        shown = one.getpeercert()
    assert shown is not None
    return int(str(shown["serialNumber"]), 16)


async def test_a_renewed_certificate_is_shown_without_a_restart_and_open_connections_stay(
    settings: Settings, tmp_path: Path
) -> None:
    ca = trustme.CA()
    files = files_of(ca, tmp_path, "parley")
    quick = {"app.gateway.edge.certificate.EVERY_S": 0.05}
    with gateway(settings, tmp_path, constants=quick, **files) as address:
        before = serial(address, ca)
        async with httpx.AsyncClient(base_url=address, verify=trusting(ca), timeout=60) as http:
            assert (await http.get("/healthz")).status_code == 200
            renewed = files_of(ca, tmp_path, "renewed")
            renewed["gateway_tls_cert"].replace(files["gateway_tls_cert"])
            async with asyncio.timeout(120):
                while "cannot be used, the old one is shown" not in (tmp_path / "gateway.log").read_text():
                    await asyncio.sleep(0.05)
            assert serial(address, ca) == before, "the key is not the new certificate's yet"
            renewed["gateway_tls_key"].replace(files["gateway_tls_key"])
            async with asyncio.timeout(120):
                while serial(address, ca) == before:
                    await asyncio.sleep(0.05)
            assert (await http.get("/healthz")).status_code == 200
    assert (tmp_path / "gateway.log").read_text().count("the old one is shown") == 1


async def test_a_caller_needs_a_certificate_of_the_authority_and_a_key(settings: Settings, tmp_path: Path) -> None:
    ca, callers, others = trustme.CA(), trustme.CA(), trustme.CA()
    authority = tmp_path / "callers.pem"
    callers.cert_pem.write_to_path(str(authority))
    files = {**files_of(ca, tmp_path, "parley"), "gateway_tls_client_ca": authority}
    with gateway(settings, tmp_path, **files) as address:
        for issuer in (None, others):
            context = trusting(ca)
            if issuer is not None:
                issuer.issue_cert("nina").configure_cert(context)
            async with httpx.AsyncClient(base_url=address, verify=context, timeout=60) as http:
                with pytest.raises(httpx.TransportError):
                    await http.get("/healthz")
        context = trusting(ca)
        callers.issue_cert("nina").configure_cert(context)
        async with httpx.AsyncClient(base_url=address, verify=context, timeout=60) as http:
            assert (await http.get("/healthz")).status_code == 200
            assert (await http.get("/v1/models")).status_code == 401


def test_files_that_do_not_fit_end_the_start_with_one_line(settings: Settings, tmp_path: Path) -> None:
    ca = trustme.CA()
    files = files_of(ca, tmp_path, "parley")
    other = files_of(ca, tmp_path, "other")["gateway_tls_key"]
    for wrong, why in (
        ({**files, "gateway_tls_key": other}, "is the key the certificate's?"),
        ({**files, "gateway_tls_client_ca": files["gateway_tls_key"]}, "PARLEY_GATEWAY_TLS_CLIENT_CA"),
        ({**files, "gateway_tls_key": tmp_path / "missing"}, "there is no such file"),
        ({"gateway_tls_key": other}, "needs PARLEY_GATEWAY_TLS_CERT"),
    ):
        ended = parley(settings.model_copy(update=wrong), tmp_path, "gateway", "--port", "0")
        assert ended.returncode == 2, ended.stderr
        assert why in ended.stderr
        assert len(ended.stderr.strip().splitlines()) == 1

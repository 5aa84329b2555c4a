"""The short version of `make clients`: two clients in their default ways, in environments of their own."""

from __future__ import annotations

import pytest

from tests.clients.suite import named, results
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE, NPM


@pytest.mark.parametrize("name", ["langchain", "ai-sdk"])
def test_a_client_works_in_its_default_ways(gateway: GatewayProcess, name: str) -> None:
    if name == "ai-sdk" and (NODE is None or NPM is None):
        pytest.skip("node is not installed: Vercel's AI SDK was not run")
    found = results(named(name), gateway.url)
    assert {check: error for check, error in found if error is not None} == {}
    assert len(found) >= 8

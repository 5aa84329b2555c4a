"""Workers with the `paced` engine on topics of their own, as tests/integration/worker has them."""

from __future__ import annotations

from tests.integration.worker.conftest import client, start_worker, worker

__all__ = ["client", "start_worker", "worker"]

"""What happens to the pods while users ask, one step after another; each gives a row of figures."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.deploy.control_plane import ControlPlane
from tests.operations.callers import Callers
from tests.pods import keda, policies, real_model
from tests.pods.chart import BESIDE, PATIENCE_S, SPACE, VALUES, Chart, restarts
from tests.pods.node import Node
from tests.pods.plain import PlainCallers

PODS = 4
STEPS = ("nothing", "policies", "upgrade", "delete", "kill", "evict", "suspend", "scale", "model", "drain")
"""Methods of `Trouble`, in their order."""
HEAD = """\
| during | seconds | answers | failed | longest pause of each (p50, p99, max s) | plain calls | failed |
|---|---|---|---|---|---|---|"""
_MANY = 40
_SCALED = {"enabled": True, "max": 3, "lagThreshold": 10, "pollingS": 5, "scaleDown": {"afterS": 15, "everyS": 15}}


@dataclass
class Cluster:
    folder: Path
    images: Path
    plane: ControlPlane
    node: Node
    chart: Chart
    at_end: ExitStack
    """What is started later, and ends with the nodes."""


@dataclass
class Trouble:
    cluster: Cluster
    callers: Callers
    plain: PlainCallers
    rows: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What did not happen as it must, besides lost answers."""

    async def step(self, name: str) -> None:
        steps: dict[str, Callable[[], Awaitable[None]]] = {one: getattr(self, one) for one in STEPS}
        await steps[name]()

    async def nothing(self) -> None:
        async with self._during("nothing"):
            await self.callers.answers(30)

    async def upgrade(self) -> None:
        async with self._during("a rolling upgrade of workers and gateways"):
            upgraded_at = int(time.time())
            self.chart.upgrade()
            await self._ready(upgraded_at)
        self.chart.show()

    async def delete(self) -> None:
        async with self._during("a worker's pod deleted"):
            self.chart.remove(self.chart.pods("worker")[0])
            await self._ready()

    async def kill(self) -> None:
        async with self._during("a worker's pod killed (grace period 0)"):
            self.chart.remove(self.chart.pods("worker")[1], 0)
            await self._ready()

    async def evict(self) -> None:
        async with self._during("all pods evicted, as the budgets allow"):
            evicted_at = time.time()
            await self._evicted()
        self.chart.events(evicted_at)

    async def suspend(self) -> None:
        """A gateway hangs; its readers connect again before its liveness probe has failed."""
        async with self._during("a gateway suspended: readiness fails, then liveness"):
            (first, *_) = self.chart.pods("gateway")
            name, began = first["metadata"]["name"], time.monotonic()
            self.cluster.node.suspend(first)
            await asyncio.to_thread(ControlPlane.until, lambda: self.chart.endpoints() == 1, PATIENCE_S)
            self.chart.say(f"the Service has one endpoint after {time.monotonic() - began:.1f} s")
            await self.callers.answers(8)
            before = restarts(first)

            def started_again() -> bool:
                pods = self.chart.pods("gateway")
                return any(one["metadata"]["name"] == name and restarts(one) > before for one in pods)

            await asyncio.to_thread(ControlPlane.until, started_again, PATIENCE_S)
            self.chart.say(f"{name} is started again after {time.monotonic() - began:.1f} s")
            await self._ready()
        self.chart.show()

    async def policies(self) -> None:
        """Each way is open, then the policies are enforced, and from then on in all steps."""
        cluster = self.cluster
        await asyncio.to_thread(policies.add_strangers, cluster.plane)
        for space, pods in ((BESIDE, 2), (policies.MONITORING, 1)):
            await asyncio.to_thread(self.chart.until_ready, space, pods)
        found = policies.ways(self.chart)
        self.wrong += [f"{way.name} is closed without policies" for way in found if not self._is_open(way)]
        async with self._during("network policies come into force"):
            cluster.at_end.enter_context(
                policies.PolicyEngine(cluster.folder / "policies", cluster.plane, cluster.node)
            )
            forbidden = [way for way in found if not way.is_allowed]
            await asyncio.to_thread(ControlPlane.until, lambda: not any(map(self._is_open, forbidden)), PATIENCE_S)
            await self.callers.answers(8)
        for way in found:
            is_open = await asyncio.to_thread(self._is_open, way)
            self.chart.say(f"{way.name}: {'open' if is_open else 'closed'}")
            if is_open is not way.is_allowed:
                self.wrong.append(f"{way.name} is {'open' if is_open else 'closed'} with policies")

    def _is_open(self, way: policies.Way) -> bool:
        return self.cluster.node.connects(way.pod, way.address, way.port)

    async def scale(self) -> None:
        """KEDA reads the requests that wait in Kafka; a third worker comes and goes."""
        cluster, programs = self.cluster, keda.folder()
        assert programs is not None
        running = cluster.at_end.enter_context(keda.Keda(programs, cluster.folder / "keda", cluster.plane))
        await asyncio.to_thread(ControlPlane.until, running.is_serving, PATIENCE_S)
        (scaled,) = (one for one in self.chart.manifests(VALUES | {"keda": _SCALED}) if one["kind"] == "ScaledObject")
        cluster.plane.create(scaled, SPACE)
        began = time.monotonic()
        async with (
            self._during("more users, and a third worker comes"),
            Callers([self.chart.address()], self.callers.key_file, users=_MANY, first=100) as many,
        ):
            await self._workers(3)
            self.chart.say(f"three workers are ready {time.monotonic() - began:.1f} s after the load")
            await many.answers(_MANY)
            await many.finish()
        self.callers.failed += many.failed
        self.callers.answered += many.answered
        began = time.monotonic()
        async with self._during("the load falls, and the third worker goes"):
            await self._workers(2)
            self.chart.say(f"two workers are left {time.monotonic() - began:.1f} s after the load")
            await self._ready()
        cluster.plane.delete(f"/apis/keda.sh/v1alpha1/namespaces/{SPACE}/scaledobjects/{scaled['metadata']['name']}")

    async def _workers(self, count: int) -> None:
        await asyncio.to_thread(self.chart.until_ready, SPACE, PODS - 2 + count)

    async def drain(self) -> None:
        """A second node comes, the first one is cordoned and drained of the release that answers the callers."""
        cluster = self.cluster
        folder = cluster.folder / "node-2"
        second = Node(folder, cluster.plane, cluster.images, number=2)
        await asyncio.to_thread(cluster.at_end.enter_context, second)
        async with self._during("the node drained; its pods move to a second one"):
            cluster.plane.patch(f"/api/v1/nodes/{cluster.node.name}", {"spec": {"unschedulable": True}})
            await self._evicted()
        self.chart.show()
        pods = [*self.chart.pods("worker"), *self.chart.pods("gateway")]
        left = [one for one in pods if one["spec"].get("nodeName") == cluster.node.name]
        self.wrong += [f"{one['metadata']['name']} is still on the drained node" for one in left if _is_alive(one)]
        cluster.plane.patch(f"/api/v1/nodes/{cluster.node.name}", {"spec": {"unschedulable": False}})

    async def model(self) -> None:
        """A real model from a claim, in a release of its own."""
        async with self._during("another release, with a real model"):
            said = await asyncio.to_thread(real_model.ask, self.chart, self.cluster.plane)
        if not said.strip():
            self.wrong.append("the model has written nothing")

    async def _evicted(self) -> None:
        for pod in [*self.chart.pods("worker"), *self.chart.pods("gateway")]:
            await asyncio.to_thread(self.chart.evict, pod)
            self.chart.say(f"evicted: {pod['metadata']['name']}")
        await self._ready()

    @property
    def chart(self) -> Chart:
        return self.cluster.chart

    async def _ready(self, newer_than: float = 0.0) -> None:
        await asyncio.to_thread(self.chart.until_ready, SPACE, PODS, newer_than)
        await self.callers.answers(8)

    @asynccontextmanager
    async def _during(self, name: str) -> AsyncIterator[None]:
        self.chart.say(name)
        began, answers, failed = time.monotonic(), len(self.callers.pauses), len(self.callers.failed)
        calls, not_answered = self.plain.calls.total(), Counter(self.plain.failed)
        yield
        pauses = sorted(self.callers.pauses[answers:])
        p50, p99 = statistics.median(pauses), pauses[round(0.99 * (len(pauses) - 1))]
        more = self.plain.failed - not_answered
        told = ", ".join(f"{count} {how}" for how, count in more.items()) or "0"
        row = f"| {name} | {time.monotonic() - began:.0f} | {len(pauses)} | {len(self.callers.failed) - failed} "
        row += f"| {p50:.2f}, {p99:.2f}, {pauses[-1]:.2f} | {self.plain.calls.total() - calls} | {told} |"
        self.rows.append(row)
        self.chart.say(row)


def _is_alive(pod: dict[str, object]) -> bool:
    status = pod["status"]
    return isinstance(status, dict) and status.get("phase") != "Succeeded"


def missing() -> dict[str, str]:
    """The steps that cannot be done here, and why."""
    return {
        name: why
        for name, why in {
            "policies": policies.missing(),
            "scale": keda.missing(),
            "model": real_model.missing(),
        }.items()
        if why
    }

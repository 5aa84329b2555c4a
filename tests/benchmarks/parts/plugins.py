"""What plug-ins cost the first token: workers with none, one and five of them, in turn.

Each decides something about a request and gives the model its prompt as it was, so all models read the same. They run
on threads of their own, as most do, or in the worker's event loop, where those may run that never block.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from parley_client.plugins import Kind

from tests.benchmarks.load import Load
from tests.benchmarks.parts.rounds import alternate, start
from tests.benchmarks.result import Claim, Result
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import Scale
from tests.benchmarks.systems import Parley
from tests.plugin_packages import on_the_path, put_package

RATE = 20.0
TOKENS = 12
COLUMNS = ["plug-ins", "requests", "first token p50 ms", "p99 ms", "whole p50 ms", "CPU ms/request"]
_SOURCE = """
from parley_client.plugins import Feature, Prompt


class OnThread(Feature):
    def __init__(self, settings):
        pass

    async def decide(self, asked):
        return {"characters": len(asked.prompt)}

    def rewrite(self, prompt, decision):
        return Prompt(prompt.prompt)


class InLoop(OnThread):
    blocks = False
"""


@dataclass(frozen=True, slots=True)
class Arm:
    """A worker with so many plug-ins of a class."""

    count: int = 0
    kind: str = "OnThread"

    @property
    def name(self) -> str:
        return f"{self.count}{', in the loop' * (self.kind == 'InLoop')}" if self.count else "none"

    def worker(self, rig: Rig, packages: Path) -> Parley:
        policy = packages / f"{self.count}-{self.kind}.toml"
        policy.write_text("".join(f"[plugins.{self.kind}_{number}]\n" for number in range(self.count)))
        return Parley(rig, path=[packages], policy=policy)


ARMS = (Arm(), Arm(1), Arm(5), Arm(5, "InLoop"))


async def run(rig: Rig, scale: Scale) -> Result:
    load = Load(seconds=scale.seconds / 2, rate=RATE, max_tokens=TOKENS, fresh=True)
    packages = rig.folder / "packages"
    packages.mkdir()
    points = {f"{kind}_{number}": f"benchmarked:{kind}" for kind in ("OnThread", "InLoop") for number in range(5)}
    put_package(packages, _SOURCE, {Kind.FEATURES: points}, "benchmarked")
    workers = {arm: arm.worker(rig, packages) for arm in ARMS}
    async with AsyncExitStack() as stack:
        stack.enter_context(on_the_path(packages))
        await start(stack, [*workers.values()])
        found = await alternate(dict.fromkeys(workers.values(), load), 4 * scale.rounds, scale.warm_up)
    result = Result("plugins", f"First token with plug-ins ({RATE:g} requests/s, Poisson)", COLUMNS)
    for arm, worker in workers.items():
        figures, used = found[worker].stats, found[worker].used
        times = (figures.first_p50, figures.first_p99, figures.whole_p50)
        spent = (used.engine_s + used.other_s) / max(1, figures.requests)
        result.rows.append([arm.name, figures.requests, *(1e3 * one for one in (*times, spent))])
    without = found[workers[ARMS[0]]].stats
    for arm in ARMS[1:]:
        ratio = found[workers[arm]].stats.first_p50 / without.first_p50
        result.claims.append(Claim(f"first token p50 over no plug-in, {arm.name}", ratio, "<=", 1.1))
    return result

"""The chart as pods: requests through the Service while pods are upgraded, deleted, killed, evicted, suspended, scaled.

    python -m tests.pods [STEP ...]

Callers with the client package ask through the gateways' Service, one question after another, and plain callers open a
new connection for each call and try nothing again. Afterwards the topics are judged as after faults. The exit code is 0
if nothing was lost and all happened as it must, or if nothing could be run; else 1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from app.settings import Settings
from tests.integration.deploy.control_plane import BINARIES, ControlPlane
from tests.operations.callers import Callers
from tests.operations.stage import KEY
from tests.operations.verdict import verdict_of
from tests.pods import image, keda, policies
from tests.pods.chart import BESIDE, BROKER, PARTITIONS, SPACE, Chart
from tests.pods.node import PROGRAMS, Node
from tests.pods.plain import PlainCallers
from tests.pods.trouble import HEAD, PODS, STEPS, Cluster, Trouble, missing

CONTROLLERS = "*,-service-lb-controller,-cloud-node-lifecycle-controller,-node-route-controller,-node-ipam-controller"
IMAGES = image.ROOT / "build" / "pods" / "images.tar"


async def main(folder: Path, images: Path, steps: list[str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plane").mkdir()
    plane = ControlPlane(folder / "plane", CONTROLLERS, keda.api_options(folder / "front"))
    with plane, Node(folder / "node", plane, images) as node, ExitStack() as at_end:
        cluster = Cluster(folder, images, plane, node, Chart(folder, plane), at_end)
        try:
            cluster.chart.say("the node is ready")
            await asyncio.to_thread(cluster.chart.install)
            cluster.chart.say("the chart is installed")
            await asyncio.to_thread(cluster.chart.until_ready, SPACE, PODS)
            cluster.chart.show()
            return await _judged(cluster, steps)
        finally:
            await asyncio.to_thread(_remove_pods, plane)


def _remove_pods(plane: ControlPlane) -> None:
    spaces = [one["metadata"]["name"] for one in plane.get("/api/v1/namespaces")["items"]]
    ours = [one for one in spaces if one in {SPACE, BESIDE, policies.MONITORING}]
    for space in ours:
        plane.delete(f"/api/v1/namespaces/{space}")
    plane.until(lambda: not any(plane.pods(space) for space in ours), 120.0)


async def _judged(cluster: Cluster, steps: list[str]) -> int:
    chart, key = cluster.chart, cluster.folder / "key"
    key.write_text(KEY)
    async with Callers([chart.address()], key) as callers:
        await callers.answers(1)
        chart.say("the first answer through the Service")
        async with PlainCallers(chart.address()) as plain:
            trouble = Trouble(cluster, callers, plain)
            for name in steps:
                await trouble.step(name)
        await callers.finish()
    settings = Settings(_env_file=None, broker=f"kafka://{BROKER}:9092", partitions=PARTITIONS)
    verdict = await verdict_of(settings)
    print("\n".join(("", HEAD, *trouble.rows, "")), flush=True)
    chart.say(f"{callers.answered} answers, failed: {callers.failed}; {verdict.line()}")
    for line in trouble.wrong:
        chart.say(f"WRONG: {line}")
    return int(bool(callers.failed or trouble.wrong) or not verdict.clean)


def _absent(images: Path) -> list[str]:
    programs = (*BINARIES, *PROGRAMS, "helm", *(() if images.exists() else image.PROGRAMS))
    return [name for name in programs if shutil.which(name) is None] + ([] if os.geteuid() == 0 else ["root's rights"])


def run(options: argparse.Namespace) -> int:
    if absent := _absent(options.images):
        print(f"skipped: pods need {', '.join(absent)}")
        return 0
    wanted = options.steps or list(STEPS)
    for name, why in missing().items():
        if name in wanted:
            print(f"not done: {name}: {why}", flush=True)
            wanted.remove(name)
    if not options.images.exists():
        image.make_images(options.images)
    with tempfile.TemporaryDirectory(prefix="parley-pods-", ignore_cleanup_errors=True) as made:
        return asyncio.run(main(options.keep or Path(made), options.images, wanted))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.pods", description=__doc__)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"{', '.join(STEPS)}; all without one")
    parser.add_argument("--images", type=Path, default=IMAGES, help="an archive, made if it is not there")
    parser.add_argument("--keep", type=Path, help="a folder that keeps all logs")
    given = parser.parse_args()
    if unknown := set(given.steps) - set(STEPS):
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    sys.exit(run(given))

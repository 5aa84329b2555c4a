"""The stand-in is like vLLM, and the engine works over the real one: for the environment that has vLLM.

python -m pytest -m gpu tests/unit/models/vllm
"""

from __future__ import annotations

import ast
import asyncio
from importlib.util import find_spec
from pathlib import Path

import pytest

from models.checkpoints.loading import describe_checkpoint
from models.interface.generation import ConstraintKind, OutputConstraint, Sampling
from models.vllm import VllmOptions, create_vllm_engine
from tests.unit.models.engine.reading import job, read
from tests.unit.models.vllm.conftest import FAKE

ELSEWHERE = {
    "outputs.py:Logprob": "logprobs.py:Logprob",
    "platforms.py:Platform": "platforms/interface.py:Platform",
    "platforms.py:Platform.is_cpu": "platforms/interface.py:Platform.is_cpu",
}


def fields(node: ast.ClassDef) -> set[str]:
    targets = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
    targets += [target for item in node.body if isinstance(item, ast.Assign) for target in item.targets]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def parameters(method: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = method.args
    return {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def offered(root: Path) -> dict[str, set[str]]:
    """Fields of every class and parameters of every method, by `file:Class` and `file:Class.method`."""
    found: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        classes = {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}
        for name, node in classes.items():
            key = f"{path.relative_to(root).as_posix()}:{name}"
            bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
            found[key] = set().union(*map(fields, (node, *bases)))
            for item in node.body:
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[f"{key}.{item.name}"] = parameters(item)
    return found


@pytest.mark.gpu
def test_stand_in_offers_nothing_that_vllm_does_not() -> None:
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.submodule_search_locations
    real, fake = offered(Path(spec.submodule_search_locations[0])), offered(FAKE / "vllm")
    # what a RequestOutput has is assigned in its constructor
    real["outputs.py:RequestOutput"] = real["outputs.py:RequestOutput.__init__"]
    public = {name: names for name, names in fake.items() if not name.split(".")[-1].startswith("_")}
    assert len(public) > 12
    for name, names in public.items():
        assert names <= real[ELSEWHERE.get(name, name)], name


@pytest.mark.gpu
@pytest.mark.timeout(900)
async def test_real_vllm_answers_resumes_and_keeps_to_a_constraint() -> None:
    folder, checkpoint = describe_checkpoint("demo")
    options = VllmOptions(more={"gpu_memory_utilization": 0.3, "enforce_eager": True})
    engine = create_vllm_engine(str(folder), checkpoint, options)
    await engine.start()
    prompt = tuple(checkpoint.tokenizer("Where is my order 4711?", add_special_tokens=False).input_ids)
    greedy = Sampling(temperature=0)
    jobs = [
        job(prompt, 12, sampling=greedy),
        job(prompt, 12, sampling=Sampling(seed=3, logprobs=2)),
        job(prompt, 12, constraint=OutputConstraint(ConstraintKind.REGEX, "[0-9]{4}")),
    ]
    whole, drawn, constrained = await asyncio.gather(*map(read, engine.submit(jobs)))
    (stream,) = engine.submit([job(prompt, 12, sampling=greedy, generated=tuple(whole.tokens[:3]))])
    rest = await read(stream, 3)
    await engine.stop()
    assert [*whole.tokens[:3], *rest.tokens] == whole.tokens
    assert drawn.reason in {"stop", "length"}
    assert len(constrained.text) == 4
    assert constrained.text.isdigit()

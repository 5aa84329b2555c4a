import copy
from importlib.util import find_spec

import pytest
import torch

from models.engine import EngineOptions, TorchEngine
from tests.unit.models import tiny

# Triton comes with torch where a GPU may be; its kernels cannot be read in without it.
collect_ignore = [] if find_spec("triton") else ["compute/test_paged_decode.py"]


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
async def engines():
    """Makes engines that are started, and stopped at the end with no page held."""
    made = []

    async def make(checkpoint=None, on_fatal=None, **options):
        engine = TorchEngine(checkpoint or tiny.checkpoint(), EngineOptions(**({"threads": 1} | options)), on_fatal)
        await engine.start()
        made.append(engine)
        return engine

    yield make
    for engine in made:
        await engine.stop()
        engine.pool.check()


def plug(engine, model):
    """The engine computes with `model` from now on, and through its own forward."""
    engine._runner.model, engine._runner._lean = model, None


class Oracle:
    """What the model itself says greedily, token by token, and how sure it was."""

    def __init__(self, checkpoint):
        self.model = copy.deepcopy(checkpoint.model)
        self.model.set_attn_implementation("eager")
        self.known = {}

    def answer(self, prompt, count):
        key = (prompt, count)
        if key not in self.known:
            out = self.model.generate(
                self._ids(prompt), max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=4
            )
            self.known[key] = out[0, len(prompt) :].tolist()
        return self.known[key]

    def _ids(self, tokens):
        return torch.tensor([tokens], device=self.model.device)

    def margin(self, prompt, answer):
        """The gap between the two best logits after `prompt` and `answer`."""
        with torch.inference_mode():
            best = self.model(self._ids((*prompt, *answer))).logits[0, -1].topk(2).values
        return float(best[0] - best[1])

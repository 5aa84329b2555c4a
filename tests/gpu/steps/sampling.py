"""What it costs to draw the tokens of a step."""

from __future__ import annotations

import torch

from models.drawing.logit_changes import LogitChanges
from models.drawing.sampler import Draw, sample
from models.interface.generation import Sampling
from tests.gpu.report import Report, milliseconds
from tests.gpu.scale import Scale

PROMPT = range(300)
WAYS = {
    "greedy": Sampling(0.0),
    "temperature": Sampling(1.0),
    "top_p 0.9": Sampling(0.6, top_p=0.9),
    "top_k 20, top_p 0.95": Sampling(0.6, top_p=0.95, top_k=20),
    "min_p 0.05": Sampling(1.0, min_p=0.05),
    "repetition penalty": Sampling(0.0, repetition_penalty=1.1),
    "logprobs 5": Sampling(0.0, logprobs=5),
}


def run(report: Report, scale: Scale) -> None:
    for rows in scale.rows:
        logits = 3 * torch.randn(rows, scale.vocabulary, device=report.device, dtype=torch.bfloat16)
        for name, way in WAYS.items():
            draws = [Draw(way, at, LogitChanges.of(way, PROMPT)) for at in range(rows)]
            ms = milliseconds(lambda draws=draws, logits=logits: sample(logits, draws).read(), report.device, 5)
            report.write(way=name, rows=rows, ms=ms)
        every = bytes([85]) * (scale.vocabulary // 8)
        draws = [Draw(WAYS["greedy"], at, allowed=every) for at in range(rows)]
        ms = milliseconds(lambda draws=draws, logits=logits: sample(logits, draws).read(), report.device, 5)
        report.write(way="mask of a form", rows=rows, ms=ms)

"""Parley's sampler and constraints inside vLLM, as a custom logits processor: vLLM's documented way to change what is
drawn. Only vLLM imports this module, by its name.

A row whose token is chosen here keeps one finite logit, which vLLM then takes as the likeliest. Log probabilities are
those of the model, as vLLM computes them before any processor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import (  # type: ignore[import-not-found,unused-ignore]
    BatchUpdate,
    LogitsProcessor,
    MoveDirectionality,
)

from models.checkpoints.loading import describe_checkpoint
from models.drawing.logit_changes import LogitChanges
from models.drawing.sampler import Draw, sample
from models.interface.generation import Sampling
from models.interface.unexpected import contained, type_and_line
from models.structured.compiler import ConstraintCompiler
from models.structured.matcher import Matcher
from models.vllm.leash import follow
from models.vllm.own_draws import OwnDraws

log = logging.getLogger(__name__)

_CERTAIN = 1e30


class DrawRow:
    """One answer in vLLM's batch. `output` is vLLM's own list of its tokens, which grows.

    An error in its constraint must not end vLLM for all others: the answer then ends with its next token, where its
    constraint does not allow it, by which the reader in Parley's process knows.
    """

    def __init__(
        self,
        own: OwnDraws,
        prompt: Sequence[int],
        output: Sequence[int],
        eos: Sequence[int],
        compiled: Callable[[], Matcher | None],
    ) -> None:
        self._own = own
        self._output = output
        self._eos = tuple(eos)
        self._prompt, self._begun = prompt[: len(prompt) - own.generated], prompt[len(prompt) - own.generated :]
        self._changes: LogitChanges | None = None
        self._changed = 0
        self._matcher: Matcher | None = None
        self._read = 0
        self._has_failed = False
        try:
            self._matcher = compiled()
            self._advance(self._begun)
        except BaseException as error:  # noqa: BLE001 - one bad answer must not hurt the others
            self._fail(error)

    def draw(self) -> Draw:
        """How its next token is drawn."""
        index = self._own.generated + len(self._output)
        allowed = None
        if self._matcher is not None and not self._has_failed:
            try:
                self._advance(self._output[self._read :])
                self._read = len(self._output)
                allowed = self._matcher.allowed()
            except BaseException as error:  # noqa: BLE001 - as above
                self._fail(error)
        if self._has_failed:
            last = self._eos[0] if self._eos else 0
            certain = Sampling(temperature=0, logit_bias=((last, _CERTAIN),))
            return Draw(certain, index, LogitChanges.of(certain, ()))
        forbidden = self._eos if index < self._own.min_tokens else ()
        return Draw(self._own.sampling, index, self._changes_now(), allowed, forbidden)

    def _changes_now(self) -> LogitChanges | None:
        """With the tokens that are new; made anew if vLLM has discarded some."""
        if not self._own.sampling.changes_logits:
            return None
        if self._changes is None or len(self._output) < self._changed:
            self._changes = LogitChanges.of(self._own.sampling, self._prompt, (*self._begun, *self._output))
        else:
            for token in self._output[self._changed :]:
                self._changes.append(token)
        self._changed = len(self._output)
        return self._changes

    def _advance(self, tokens: Sequence[int]) -> None:
        if self._matcher is not None:
            for token in tokens:
                self._matcher.advance(token)

    def _fail(self, error: BaseException) -> None:
        self._has_failed = True
        log.warning("an answer ends: its constraint cannot be followed (%s)", type_and_line(contained(error)))


class ParleyDraws(LogitsProcessor):  # type: ignore[misc,unused-ignore]
    """Draws the tokens of all rows that have `OwnDraws`."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # noqa: ARG002
        follow()
        self._config = config = vllm_config.model_config
        self._rows: dict[int, DrawRow] = {}
        _, checkpoint = describe_checkpoint(config.model, remote_code=config.trust_remote_code)
        self._tokenizer = checkpoint.tokenizer
        self._compilers: dict[tuple[int, ...], ConstraintCompiler] = {}
        self._compiler(tuple(sorted(checkpoint.eos))).prepare()

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, prompt, output in batch_update.added:
            self._rows.pop(index, None)
            if (own := OwnDraws.read(params.extra_args)) is not None:
                self._rows[index] = self._row(own, params, prompt or (), output)
        for source, target, direction in batch_update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if replaced is not None and direction is MoveDirectionality.SWAP:
                self._rows[source] = replaced

    def apply(self, logits: Tensor) -> Tensor:
        rows = sorted(self._rows)
        if not rows:
            return logits
        at = torch.tensor(rows, device=logits.device)
        drawn = sample(logits[at], [self._rows[row].draw() for row in rows]).tokens
        # Not finite: vLLM ends such an answer in its own way.
        kept = logits[at, drawn]
        logits[at] = -torch.inf
        logits[at, drawn] = torch.where(kept.isnan(), kept, torch.zeros_like(kept))
        return logits

    def _row(self, own: OwnDraws, params: Any, prompt: Sequence[int], output: Sequence[int]) -> DrawRow:
        eos = tuple(sorted(params.stop_token_ids or ()))

        def compiled() -> Matcher | None:
            # Parley's process has compiled it before, in time.
            constraint = own.constraint
            return None if constraint is None else self._compiler(eos).ask(constraint).result().copy()

        return DrawRow(own, prompt, output, eos, compiled)

    def _compiler(self, eos: tuple[int, ...]) -> ConstraintCompiler:
        if eos not in self._compilers:
            self._compilers[eos] = ConstraintCompiler(self._tokenizer, self._config.get_vocab_size(), frozenset(eos))
        return self._compilers[eos]

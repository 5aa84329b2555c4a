"""The engine's thread: accepts jobs from the event loop, runs steps, returns events.

It communicates with the event loop through one queue in each direction: `inbox`, and one wake-up of the loop per step.
Only this thread ends a stream, so each ends once. If a step fails, its slices are computed one by one: the ones that
fail alone get an error, the others continue.

    CPU     start 1 | finish 1 | start 2 | finish 2 | ...
    GPU     start 1 | start 2 | finish 1 | start 3 | finish 2 | ...

If the device computes asynchronously, a step whose sequences are certain is started before its predecessor is read, so
that the device is busy while tokens are delivered. It reads the drawn tokens on the device. A sequence that turns out
to have ended has computed one token in vain, in pages that are reused only after that.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from traceback import clear_frames

import torch

from models.drawing.sampler import Token
from models.engine.adapters import Adapters, Fetched
from models.engine.prompt_scores import NotFiniteError
from models.engine.runner import Runner, Step
from models.engine.scheduler import Scheduler
from models.engine.sequence import ScheduledChunk, SequenceState
from models.engine.speculation.drafting import Speculation
from models.engine.threads import Threads
from models.files.adapters import AdapterError
from models.files.errors import CheckpointError, first_line
from models.interface.generation import Failure, FinishReason, Job, StreamEvent
from models.interface.token_stream import TokenStream
from models.interface.unexpected import contained, type_and_line
from models.structured import ConstraintCompiler, ConstraintError, Matcher
from models.structured.after_reasoning import after_reasoning
from models.text.detokenizer import Vocabulary

log = logging.getLogger(__name__)

FAILED = "the engine failed in this answer"
LEAST_CHUNK = 16
IDLE_S = 0.2

Events = list[tuple[TokenStream, StreamEvent]]


@dataclass(frozen=True, slots=True)
class Submitted:
    jobs: Sequence[tuple[Job, TokenStream]]


@dataclass(frozen=True, slots=True)
class Cancelled:
    stream: TokenStream
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Stopped:
    pass


@dataclass(frozen=True, slots=True)
class Compiled:
    """The output constraint of an answer, or why it has none."""

    stream: TokenStream
    constraint: Future[Matcher]


Message = Submitted | Cancelled | Stopped | Fetched | Compiled


class EngineThread:
    """`run` is the thread's main function; `inbox` and `step_began` are for other threads.

    `deliver` is called with the events of a step, `died` with one line when the thread cannot continue.
    """

    def __init__(
        self,
        *,
        runner: Runner,
        scheduler: Scheduler,
        adapters: Adapters,
        constraints: ConstraintCompiler,
        speculation: Speculation | None,
        vocabulary: Vocabulary,
        eos: frozenset[int],
        context_length: int,
        threads: Threads,
        overlaps: bool,
        prepare: Callable[[], None],
        deliver: Callable[[Events], None],
        ready: Callable[[], None],
        died: Callable[[str], None],
    ) -> None:
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.step_began: float | None = None
        self._runner = runner
        self._scheduler = scheduler
        self._adapters = adapters
        self._constraints = constraints
        self._speculation = speculation
        self._vocabulary = vocabulary
        self._eos = eos
        self._context_length = context_length
        self._threads = threads
        self._overlaps = overlaps
        self._next: Step | None = None
        self._prepare = prepare
        self._deliver = deliver
        self._ready = ready
        self._died = died
        self._sequences: dict[TokenStream, SequenceState] = {}
        self._number = 0
        self._out: Events = []
        self._stopping = False

    def run(self) -> None:
        try:
            self._threads.prepare()
            self._prepare()
            self._ready()
            while not self._stopping:
                self._receive()
                self._enter()
                self._step()
                self._flush()
        except CheckpointError as error:
            self._died(str(error))
        except BaseException as error:  # whatever ends this thread, the event loop must learn of it
            log.exception("the engine's thread died")
            self._died(f"the engine's thread died: {type(error).__name__}: {error}".splitlines()[0])

    def _receive(self) -> None:
        """Process all messages; wait only if there is nothing to compute."""
        if not self._sequences:
            self._handle(self._idle())
        elif not self._scheduler.running and not self._scheduler.waiting and not self._adapters.can_go_on:
            self._handle(self.inbox.get())
        with suppress(queue.Empty):
            while True:
                self._handle(self.inbox.get_nowait())

    def _idle(self) -> Message:
        """The next message; first trim memory, if there is time for it, because that holds the GIL."""
        try:
            return self.inbox.get(timeout=IDLE_S)
        except queue.Empty:
            self._scheduler.pool.check()
            return self.inbox.get()

    def _handle(self, message: Message) -> None:
        match message:
            case Submitted(jobs):
                for job, stream in jobs:
                    self._begin(job, stream)
            case Cancelled(stream, reason):
                if (sequence := self._sequences.get(stream)) is not None:
                    self._cancel(sequence, reason)
            case Fetched():
                self._adapters.install(message)
            case Compiled(stream, constraint):
                if (sequence := self._sequences.get(stream)) is not None:
                    self._admit(sequence, constraint)
            case Stopped():
                self._stopping = True
                self._adapters.stop()
                self._constraints.stop()

    def _begin(self, job: Job, stream: TokenStream) -> None:
        self._number += 1
        try:
            sequence = SequenceState(job, stream, self._number, time.monotonic(), self._context_length)
        except BaseException as error:  # noqa: BLE001  one bad job must not hurt the others
            log.warning("answer %r cannot begin: %s", job.id, type_and_line(contained(error)))
            self._out.append((stream, Failure(len(job.generated), "engine_error", FAILED)))
            return
        self._sequences[stream] = sequence
        try:
            end = sequence.read(self._vocabulary, self._eos)
            constraint = None if job.constraint is None else self._constraints.ask(job.constraint, job.user)
        except BaseException as error:  # noqa: BLE001  one bad job must not hurt the others
            self._fail(sequence, "engine_error", contained(error))
            return
        if end is not None:
            self._end(sequence, end)
            return
        if constraint is None:
            self._admit(sequence)
        else:
            sequence.compiling = constraint
            constraint.add_done_callback(lambda compiled: self.inbox.put(Compiled(stream, compiled)))

    def _admit(self, sequence: SequenceState, constraint: Future[Matcher] | None = None) -> None:
        """The sequence has everything but its adapter."""
        try:
            end = sequence.begin(None if constraint is None else self._matcher(sequence.job, constraint))
        except BaseException as error:  # noqa: BLE001  one bad job must not hurt the others
            self._fail(sequence, "engine_error", contained(error))
            return
        if end is not None:
            self._end(sequence, end)
        elif sequence.job.adapter:
            self._adapters.ask(sequence)
        else:
            self._scheduler.add(sequence)

    def _matcher(self, job: Job, compiled: Future[Matcher]) -> Matcher:
        return after_reasoning(compiled.result().copy(), job.reasoning, self._vocabulary.reasoning_tokens, self._eos)

    def _cancel(self, sequence: SequenceState, reason: FinishReason) -> None:
        try:
            end = sequence.end(reason)
        except BaseException as error:  # noqa: BLE001  one bad job must not hurt the others
            self._fail(sequence, "engine_error", contained(error))
        else:
            self._end(sequence, end)

    def _enter(self) -> None:
        """Admit sequences whose adapter has been loaded."""
        for sequence, error in self._adapters.admitted() if self._adapters.waited_for else ():
            if error is None:
                self._scheduler.add(sequence)
            else:
                self._fail(sequence, "model_not_found", error)

    def _step(self) -> None:
        self.step_began = began = time.monotonic()
        self._threads.begin()
        step, self._next = self._next or self._start(), None
        if step is not None:
            if self._overlaps:
                self._next = self._follow(step)
            self._finish(step)
            self._runner.times.total += time.monotonic() - began
            self._threads.end(sum(1 + len(part.draft) if part.count == 1 else part.count for part in step.slices))
        self.step_began = None

    def _start(self) -> Step | None:
        slices = self._scheduler.schedule()
        return self._compute(self._with_drafts(slices)) if slices else None

    def _compute(self, slices: list[ScheduledChunk]) -> Step | None:
        try:
            return self._runner.start(slices)
        except BaseException as error:  # noqa: BLE001  what a model may raise is not known; nothing is swallowed
            self._contain(slices, contained(error))
            return None

    def _follow(self, step: Step) -> Step | None:
        """Start the step after one that is not read yet, so that the device computes while its tokens are delivered."""
        if self._speculation is not None or not self.inbox.empty():
            return None
        slices = self._scheduler.advance(step.slices)
        try:
            return None if slices is None else self._runner.advance(step, slices)
        except BaseException as error:  # noqa: BLE001  one bad job must not hurt the others
            log.info("a step could not be started early: %s", type_and_line(contained(error)))
            return None

    def _with_drafts(self, slices: list[ScheduledChunk]) -> list[ScheduledChunk]:
        if self._speculation is None:
            return slices
        try:
            return self._speculation.extend(slices)
        except BaseException as error:  # noqa: BLE001  whatever it is, answers do not depend on it
            self._draft_no_more(contained(error))
            return slices

    def _draft_no_more(self, error: Exception) -> None:
        log.error("speculation failed and is off from now on: %s", type_and_line(error), exc_info=error)
        self._speculation = None

    def _finish(self, step: Step) -> None:
        """Process what the step has drawn. Tokens of a sequence that has ended since its start are dropped."""
        try:
            drawn = step.read()
            scores = list(step.scores.read()) if step.scores is not None else []
        except BaseException as error:  # noqa: BLE001  one bad job must not hurt the others
            self._next = None  # a token that cannot be decoded came before
            self._contain([part for part in step.slices if not part.sequence.ended], contained(error))
            return
        self._learn(step, drawn)
        for part, logprobs in scores:
            if part.sequence.scores is not None:
                part.sequence.scores += logprobs
        tokens = {id(part): accepted for part, accepted in drawn}
        for part in step.slices:
            if part.sequence.ended:
                continue
            if accepted := tokens.get(id(part)):
                self._accept(part, accepted)
            else:
                part.sequence.advance(part.count, self._scheduler.pool)

    def _learn(self, step: Step, drawn: Sequence[tuple[ScheduledChunk, list[Token]]]) -> None:
        try:
            if self._speculation is not None:
                self._speculation.learn(step.slices, drawn, time.perf_counter() - step.began)
        except BaseException as error:  # noqa: BLE001  whatever it is, answers do not depend on it
            self._draft_no_more(contained(error))

    def _accept(self, part: ScheduledChunk, tokens: list[Token]) -> None:
        """Accept the drawn tokens as far as they agree with the draft: what was computed after those is valid."""
        sequence, known = part.sequence, part.count
        for at, token in enumerate(tokens):
            if not token.finite:
                self._fail(sequence, "engine_error", NotFiniteError())
                return
            sequence.advance(known, self._scheduler.pool)
            self._append(sequence, token)
            if sequence.ended or at == len(part.draft) or token.token != part.draft[at]:
                return
            known = 1

    def _contain(self, slices: list[ScheduledChunk], error: Exception) -> None:
        """A step failed: find out which slices are at fault."""
        clear_frames(error.__traceback__)  # what the step had computed would hold its memory
        self._check_device()
        if not slices:
            return
        if len(slices) > 1:
            log.warning("a step of %d answers failed, each is tried alone: %s", len(slices), type_and_line(error))
            for part in slices:
                if (step := self._compute([part])) is not None:
                    self._finish(step)
        elif isinstance(error, torch.OutOfMemoryError) and slices[0].count > LEAST_CHUNK:
            sequence, count = slices[0].sequence, max(LEAST_CHUNK, slices[0].count // 2)
            sequence.most_at_once = count
            log.warning("out of memory: answer %r computes its prompt in chunks of %d tokens", sequence.job.id, count)
        else:
            self._fail(slices[0].sequence, "engine_error", error)

    def _check_device(self) -> None:
        """Raise if the device or the model is broken, which ends the thread. A lack of memory ends single answers."""
        try:
            self._runner.check()
        except torch.OutOfMemoryError as error:
            log.warning("the device has no memory for a step of one token: %s", type_and_line(error))

    def _append(self, sequence: SequenceState, token: Token) -> None:
        sent = sequence.answered
        try:
            delta, end = sequence.append(token, self._eos)
        except BaseException as error:  # noqa: BLE001  one bad job must not hurt the others
            self._fail(sequence, "engine_error", contained(error), sent)
            return
        if delta is not None:
            self._out.append((sequence.stream, delta))
        if end is not None:
            self._end(sequence, end)

    def _fail(self, sequence: SequenceState, code: str, error: Exception, sent: int | None = None) -> None:
        """`sent`: how many tokens of the answer readers have, if not all. They see our own words only: the text of a
        library may quote a prompt or a path.
        """
        message = str(error) if isinstance(error, AdapterError | NotFiniteError) else FAILED
        if isinstance(error, ConstraintError):
            message = first_line(error)
            field = "tools" if sequence.job.tools is not None else "response_format"
            code, message = "invalid_request", f"{field}: {message}"
            # The message may quote the constraint, which is user data: it goes to the sender only.
            log.warning("answer %r failed: its %s cannot be followed", sequence.job.id, field)
        else:
            log.warning("answer %r failed: %s", sequence.job.id, type_and_line(error) if message == FAILED else message)
        self._end(sequence, Failure(sequence.answered if sent is None else sent, code, message), forget=True)

    def _end(self, sequence: SequenceState, event: StreamEvent, *, forget: bool = False) -> None:
        sequence.ended = True
        del self._sequences[sequence.stream]
        if sequence.compiling is not None:
            sequence.compiling.cancel()
        freed = self._scheduler.remove(sequence, forget=forget)
        if sequence.job.adapter:
            self._adapters.leave(sequence)
        try:
            if self._speculation is not None:
                self._speculation.leave(sequence)
        except BaseException as error:  # noqa: BLE001  whatever it is, answers do not depend on it
            self._draft_no_more(contained(error))
        if forget:
            self._runner.scrub(freed)
        self._out.append((sequence.stream, event))

    def _flush(self) -> None:
        if self._out:
            out, self._out = self._out, []
            self._deliver(out)

"""What a stage may ask of the answer that it is a part of, and how it ends the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from app.answering.batches import Batches
from app.answering.dialogue import Dialogue, memory_of
from app.delivery.accepted import RequestKey
from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlight
from app.delivery.partition import Partition
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.quarantine import write_attempt
from app.delivery.stop_handle import StoppedError
from app.settings import Settings
from app.wire.error import ErrorCode
from app.wire.event import Plan
from models.interface.generation import End, FinishReason, Stream, Usage
from models.served.registry import ModelRegistry, ServedModel
from tables import records
from tables.conversations import MemoryRules
from tables.erasures import Marks
from tables.records import Conversation, KeptTurn, Table

T = TypeVar("T")
See = Callable[[Dialogue], Awaitable[Dialogue]]


class RequestRefused(Exception):  # noqa: N818 - no failure: it ends an answer
    """The answer ends with this error; the message is one line for the sender."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Over(Exception):  # noqa: N818 - no failure: it ends an answer
    """The answer ends here, whatever the stages around would do."""

    def __init__(self, end: End) -> None:
        super().__init__(end.reason)
        self.end = end


class Asleep(Exception):  # noqa: N818 - no failure: it ends an answer for now
    """The answer waits, and is open no longer. The `commit` is put in the same step; `settle` is called behind it."""

    def __init__(self, commit: Commit, settle: Callable[[], None]) -> None:
        super().__init__("asleep")
        self.commit, self.settle = commit, settle


class Run:
    """One request while it is answered.

    ownership: That of the partition, which the run belongs to.
    conversation, memory: As it was stored when it was last read, and the turns of it that the request sees.
    erased_at: The last erasure of it by then, Unix milliseconds.
    reads_past: The prompt contains earlier turns, so the answer may quote them.
    answer: What readers have, with the plan in force.
    sees: What the stages do to a dialogue before a model reads it.
    spent: Tokens that were computed for it and that the usage of its end does not have.
    """

    def __init__(
        self,
        settings: Settings,
        models: ModelRegistry,
        rules: MemoryRules,
        batches: Batches,
        partition: Partition,
        inflight: InFlight,
    ) -> None:
        self.settings, self.models, self.rules, self.batches = settings, models, rules, batches
        self.partition, self.ownership = partition, partition.ownership
        self.inflight, self.accepted = inflight, inflight.accepted
        self.spent = 0
        self.reads_past = False
        self._stream: Stream | None = None
        self.sees: Sequence[See] = ()
        self.read_conversation()
        model = self.model_by(self.accepted.former.plan)
        token_log = self.ownership.token_log
        self.answer = AnswerLog(token_log, self.accepted, inflight.trace_headers, model, models.default)
        inflight.answer = self.answer

    @property
    def key(self) -> RequestKey:
        return self.accepted.key

    @contextmanager
    def reading(self, stream: Stream) -> Iterator[None]:
        """While a round's events come from this stream. It is released at once: engines count those that are held."""
        self._stream = stream
        try:
            yield
        finally:
            self._stream = None

    async def pause(self) -> None:
        """Wait until the next tokens may be written. What is left once the model has ended goes out with the end."""
        if self._stream is None or not self._stream.ended:
            await self.answer.pause(self._stream)

    @property
    def hides_turn(self) -> bool:
        """Whether the record of its turn has no texts."""
        return self.forgets or not self.stores

    @property
    def stores(self) -> bool:
        """Whether its turn is remembered and indexed: its sender wants that, and no later request rolls it back."""
        return self.accepted.request.store and not self.answer.plan.rolled_back

    @property
    def forgets(self) -> bool:
        """Whether nothing of it may be kept, because of an erasure: it was asked before, or its answer may quote what
        was erased.
        """
        marks, begun_at = self.marks, self.accepted.former.begun_at
        return marks.forbid(self.accepted.at, begun_at) or (self.reads_past and self.erased_at < marks.at)

    @property
    def marks(self) -> Marks:
        return self.ownership.marks.of(*self.accepted.conversation)

    async def replan(self, plan: Plan) -> None:
        """Put the plan in force; raises `Over` if the guard ends the answer by it."""
        await self.answer.decide(plan)
        if plan.filtered is not None:
            raise Over(self.ended_by(FinishReason.FILTERED))

    def check(self) -> None:
        """Raise `Over` if the request was cancelled or is late."""
        if (reason := self.inflight.stop.reason) is not None:
            raise Over(self.ended_by(reason))

    def ended_by(self, reason: FinishReason, prompt_tokens: int = 0) -> End:
        """The end of the answer behind what is written."""
        return End(self.answer.index, reason, Usage(prompt_tokens, self.answer.tokens_of_round))

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that ends with the request; raises `Over` then."""
        try:
            return await self.inflight.stop.run(work)
        except StoppedError:
            self.check()
            raise

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """While the answer waits for others: it holds no slot, and a worker that is lost meanwhile is not its fault."""
        count = self.inflight.attempts
        count.end_beginning()
        if count.is_recorded:
            count.is_recorded = False
            await write_attempt(self.ownership.token_log, self.inflight, count.lost)
        async with self.partition.without_slot(self.inflight):
            yield

    def read_conversation(self) -> None:
        self.erased_at = self.marks.at
        self.conversation, self.memory = self.remembered()

    def drop_erased(self) -> None:
        """Forget what was read before an erasure that has come since."""
        if self.erased_at < self.marks.at:
            self.conversation, self.memory = None, ()

    def remembered(self) -> tuple[Conversation | None, tuple[KeptTurn, ...]]:
        """The conversation as it is stored now, and the turns of it that the request sees. Rows that an erasure has
        not deleted yet count as deleted.
        """
        raw = self.ownership.store.get(Table.CONVERSATIONS, records.key(*self.accepted.conversation))
        conversation = None if raw is None else records.decode_row(raw, Conversation)
        if conversation is not None and self.marks.hide(conversation):
            conversation = None
        if (sleeper := self.accepted.sleeper) is not None:  # what it read before, and nothing later
            return conversation, () if sleeper.memory.erased_at < self.marks.at else sleeper.memory.turns
        return conversation, () if conversation is None else memory_of(self.accepted, conversation, self.rules)

    async def see(self, dialogue: Dialogue) -> Dialogue:
        """The dialogue as a model gets to read it."""
        for see in self.sees:
            dialogue = await see(dialogue)
        return dialogue

    async def visible_dialogue(self) -> Dialogue:
        """What a model gets to read now."""
        answer, request = self.answer, self.accepted.request
        recalled = answer.plan.recalled or ()
        return await self.see(Dialogue(request, self.memory, recalled, answer.rounds, answer.inherited_text))

    def model(self) -> ServedModel | None:
        """The model that answers now; None if it is not served here."""
        return self.model_by(self.answer.plan)

    def model_by(self, plan: Plan) -> ServedModel | None:
        """The model that has written the answer since the last fallback, else that of the plan or of the request."""
        former = self.accepted.former
        written = () if former.answer is None else former.written_from(plan.from_index or 0)
        if written and (began := self.models.decided(written[0].model_version or "")) is not None:
            return began
        return self.models.decided(plan.model) if plan.model else self.models.find(self.accepted.request.model)

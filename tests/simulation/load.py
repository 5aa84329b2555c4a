"""The load of a run: which requests users send, what belongs to each, and when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from app.wire.record_size import MAX_RECORD_BYTES
from tests.faults.load import TOOLS
from tests.simulation import foreign, results

if TYPE_CHECKING:
    from tests.simulation.scenario import Simulation

_LATEST_S = 5.0  # after a request comes the last of what belongs to it


@dataclass(frozen=True, slots=True)
class Load:
    requests: int = 8
    users: int = 3
    tokens: int = 4
    over_s: float = 6.0
    cancels: float = 0.0
    """Share of requests that would speak for ever, and are cancelled."""
    repeats: float = 0.0
    """Share of requests that are sent again."""
    garbage: float = 0.0
    deadlines: float = 0.0
    erases: float = 0.0
    """Share of requests beside which their user is erased."""
    deletes: float = 0.0
    """Share of requests beside which their conversation is erased."""
    conversations: int = 0
    """How many conversations each user has; 0 for the default one alone."""
    pauses: float = 0.0
    """Share of requests before which the load pauses for longer than conversations live."""
    skewed: float = 0.0
    """Share of requests whose producer's clock is an hour off."""
    misplaced: float = 0.0
    """Share of requests that a wrong partitioner puts elsewhere."""
    huge: float = 0.0
    """Share of requests beside which a record comes that no dead letter can hold whole."""
    tools: float = 0.0
    """Share of requests with tools over Kafka."""
    tool_times_ms: tuple[int, ...] = (2000,)
    """How long such requests wait for a call, by chance."""
    tools_late_s: tuple[float, ...] = (0.0,)
    """How much later results come, by chance."""
    silent: float = 0.0
    """Share of requests with tools whose calls nobody answers, so that a cancel alone ends them."""
    timers: float = 0.0
    """Share of requests with `not_before`."""
    timers_s: tuple[float, ...] = (0.5, 2.0, 6.0)
    """How long they wait, by chance."""
    agents: float = 0.0
    """Share of requests that name the agent `helper`."""
    programs: float = 0.0
    """Share of requests of the agent `desk`, each in a conversation of its own (programs.py)."""
    stops: float = 0.0
    """Share of requests that are cancelled at some time, most before their end."""
    recall: float = 0.0
    """Share of requests that ask for related older turns."""
    same: float = 0.0
    """Share of requests that a user repeats, each in a conversation of its own."""
    same_in: int = 0
    """How many conversations these share, each request with its whole context; 0 for one each."""
    failing: float = 0.0
    """Share of requests in which a model fails: once in each process, or, of the default model, always at one token."""
    reasoning: float = 0.0
    """Share of requests to which models reason before they answer."""
    deadly: float = 0.0
    """Share of requests that end each process whose engine begins them."""
    foreign: float = 0.0
    """Share of requests that come by topics of others (foreign.py)."""
    talks: float = 0.0
    """Share of requests that continue their conversation by messages."""
    whole: float = 0.0
    """Share of requests that bring their whole context, and are remembered all the same."""
    tenant: str | None = None
    """Whose requests all are."""
    busy: float = 0.0
    """Share of requests with a word of `while_busy`; of the others a third would speak for ever until one ends them."""
    busy_words: tuple[str, ...] = ("reject", "interrupt", "rollback")
    busy_lasts: bool = False
    """The third ends by itself instead, after long: behind it is answered what had to be rejected."""
    best_of: float = 0.0
    """Share of requests of whose answers the best is wanted; those that call tools over Kafka cannot be."""
    forks: float = 0.0
    replaces: float = 0.0
    """Share of requests beside which later ones begin conversations as copies up to them, or as copies of copies."""
    results: float = 0.0
    """Share of requests that call tools of their sender, which sends the results as later records (results.py)."""


class Sending:
    """Draws the requests of a load, and puts each of their records on its topic in time."""

    def __init__(self, simulation: Simulation, load: Load) -> None:
        self.simulation, self.load, self.random = simulation, load, simulation.random
        self.after, self.send, self.append = simulation.world.after, simulation.send, simulation._append

        self._last_at: dict[tuple[str, str], float] = {}

    def begin(self) -> None:
        self._begin()
        for number, ((user, conversation), at) in enumerate(self._last_at.items(), start=900):
            ends = {"while_busy": self.random.choice(("interrupt", "rollback")), "conversation_id": conversation}
            request = {"request_id": f"r{number}", "user_id": user, "prompt": f"question {number}", "max_tokens": 3}
            late_s = 25.0 if self.load.busy_lasts else self.random.choice((2.0, 10.0))
            self.after(at + late_s, partial(self.send, "requests", user, {**request, **ends}))
            self.simulation.keep_running(at + late_s + _LATEST_S)

    def _begin(self) -> None:
        load, paused = self.load, 0.0
        for number in range(load.requests):
            user = f"user-{number % load.users}"
            request: dict[str, object] = {"request_id": f"r{number}", "user_id": user, "prompt": f"question {number}"}
            request["max_tokens"] = self.random.randint(1, 2 * load.tokens)
            request |= self._tools_of(number) | self._same_of(number)
            request |= {"recall": self.random.randint(1, 3)} if self._drawn(load.recall) else {}
            request |= {"reasoning_effort": "high"} if self._drawn(load.reasoning) else {}
            request = self._whole_of(self._talk_of(request))
            request = {**self._conversation_of(), **request}
            request |= self._busy_of() | self._candidates_of(request)
            request |= {} if load.tenant is None else {"tenant": load.tenant}
            if self.random.random() < load.pauses:
                paused += 2.5 * self.simulation.conditions.ttl_s
            at = paused + load.over_s * number / load.requests + self.random.random()
            self.simulation.keep_running(at + _LATEST_S)
            if self._comes_from_others(at, user, request):
                continue
            skew = self.random.choice((-3600.0, 3600.0)) if self.random.random() < load.skewed else 0.0
            misplaced = self.simulation.partitions > 1 and self.random.random() < load.misplaced
            send = partial(self.send, "requests", user, skew=skew, misplaced=misplaced)
            if self.random.random() < load.deadly and not misplaced:
                self.simulation.deadly.add((user, f"r{number}"))
            if self._drawn(load.failing):
                # The verdict does not follow a takeover among rounds of calls.
                always = "tool_mode" not in request and self.random.random() < 0.5 and self.simulation.conditions.routed
                self.simulation.failing[user, f"r{number}"] = always
            if self.random.random() < load.huge:
                self.after(at, partial(self.append, "requests", user, b"x" * (MAX_RECORD_BYTES - 100)))
            if not self._cancels(at, user, number, request) and self.random.random() < load.deadlines:
                request["deadline_ms"] = self.random.choice((0, 100, 1000, 5000))
            request |= self._timer_of(at)
            if self._drawn(load.stops):
                cancel = {"type": "cancel", "request_id": f"r{number}", "user_id": user}
                self.after(at + self.random.choice((0.1, 1.0, 3.0, 8.0)), partial(self.send, "controls", user, cancel))
            self._erase_beside(at, user)
            self._delete_beside(at, user, str(request.get("conversation_id", "default")))
            self.after(at, partial(send, request))
            self._fork(at, user, number, request)
            self._send_results(at, user, number, request)
            if self.random.random() < load.repeats:
                self.after(at + self.random.choice((0.0, 0.3, 5.0)), partial(send, request))
            self._note_last(at, (user, f"r{number}"), request)
            if self.random.random() < load.garbage:
                self.after(at, partial(self.append, "requests", user, b"{not json"))
                bad = {"request_id": f"bad{number}", "user_id": user, "prompt": "", "max_tokens": 3}
                good = {**bad, "prompt": "a good one of a known id"}
                for late, one in ((0.0, bad), (self.random.choice((0.0, 1.0)), {**bad, "prompt": 7}), (0.0, good)):
                    self.after(at + late, partial(self.send, "requests", user, one))

    def _cancels(self, at: float, user: str, number: int, request: dict[str, object]) -> bool:
        """Whether the request ends by a cancel alone: it would speak for ever, or nobody answers its calls."""
        load, late_s = self.load, (-0.5, 0.0, 0.3, 3.0)
        if "tool_mode" in request and self._drawn(load.silent):
            assert self.simulation.tools is not None
            self.simulation.tools.silent.add((user, f"r{number}"))
            request |= {"tool_timeout_ms": 900_000, "max_tokens": 8}
            late_s = (0.0, 0.3, 1.5, 3.0, 20.0)
        elif self.random.random() < load.cancels:
            request["max_tokens"] = 100_000
        else:
            return False
        self.simulation.endless.add((user, f"r{number}"))
        cancel = {"type": "cancel", "request_id": f"r{number}", "user_id": user}
        late = self.random.choice(late_s)
        self.after(at + late, partial(self.send, "controls", user, cancel))
        if late > _LATEST_S:
            self.simulation.keep_running(at + late + _LATEST_S)
        return True

    def _comes_from_others(self, at: float, user: str, request: dict[str, object]) -> bool:
        """Whether this request comes by a topic of others."""
        if not self._drawn(self.load.foreign):
            return False
        for late in (0.0, *([self.random.choice((0.0, 0.3, 5.0))] if self.random.random() < self.load.repeats else [])):
            self.after(at + late, partial(foreign.send, self.simulation.broker, self.random, request))
        if self.random.random() < self.load.garbage:
            self.after(at, partial(foreign.send_garbage, self.simulation.broker, self.random))
        self._erase_beside(at, user)
        return True

    def _erase_beside(self, at: float, user: str) -> None:
        if self._drawn(self.load.erases):
            erase = partial(self.send, "controls", user, {"type": "erase", "user_id": user})
            self.after(at + self.random.choice((-0.5, 0.0, 0.3, 3.0)), erase)

    def _send_results(self, at: float, user: str, number: int, request: dict[str, object]) -> None:
        if not self.load.results or request.get("conversation_id") != f"t{number}":
            return
        for one in results.following(user, number, is_known=self.random.random() < 0.8):
            at += self.random.choice((0.05, 0.3, 3.0))
            for late in (0.0, *([0.5] if self.random.random() < self.load.repeats else [])):
                self.after(at + late, partial(self.send, "requests", user, one))
        self.simulation.keep_running(at + _LATEST_S)

    def _fork(self, at: float, user: str, number: int, request: dict[str, object]) -> None:
        """Begin copies at this request: of what is there by then, as a gateway would read it."""
        of, source, is_plain = f"r{number}", str(request.get("conversation_id", "default")), "tools" not in request
        for copy in range(3):
            if not self._drawn(self.load.forks):
                return
            at += self.random.choice((0.01, 0.3, 2.0, 5.0))
            name, to = f"f{number}-{copy}", f"copy{number}-{0 if self._drawn(0.2) else copy}"
            begin = {"request_id": of, "conversation_id": source}
            asked: dict[str, object] = {"request_id": name, "user_id": user, "conversation_id": to, "from": begin}
            asked |= {"max_tokens": request["max_tokens"]} | ({} if is_plain else self._tools_of(number))
            asked |= self._replaced_by_it(of, number)
            kind = self.random.choice(("behind", "again", "within") if is_plain else ("behind", "again"))
            self.after(at, partial(self._send_fork, user, kind, self.random.random(), asked, begin))
            if self._drawn(self.load.repeats):
                self.after(at + 0.5, partial(self._send_fork, user, kind, 0.0, asked, begin))
            self._delete_beside(at, user, self.random.choice((source, to)))
            if self.load.replaces and self._drawn(0.3):  # one that may have no answer
                stop = {"type": "cancel", "user_id": user, "request_id": name}
                self.after(at + 0.01, partial(self.send, "controls", user, stop))
            self.simulation.keep_running(at + _LATEST_S)
            if self._drawn(0.5):
                of, source = name, to

    def _replaced_by_it(self, of: str, number: int) -> dict[str, object]:
        """The request that is asked again, and perhaps the next one, whatever its conversation."""
        if not self.load.replaces or not self._drawn(self.load.replaces):
            return {}
        return {"replaces": [of, *([f"r{number + 1}"] if self._drawn(0.4) else [])]}

    def _send_fork(
        self, user: str, kind: str, share: float, asked: dict[str, object], begin: dict[str, object]
    ) -> None:
        if kind == "behind":
            asked["prompt"] = f"{asked['request_id']} asks"
            asked["max_tokens"] = min(12, int(str(asked["max_tokens"])))
        else:
            written = self.simulation.written_of(user, str(begin["request_id"])) if kind == "within" else []
            index = round(share * len(written))
            begin |= {"index": index, "tokens": written[:index]}
            asked["max_tokens"] = max(index, 1, min(12, int(str(asked["max_tokens"]))))
        self.send("requests", user, asked)

    def _delete_beside(self, at: float, user: str, conversation: str) -> None:
        if self._drawn(self.load.deletes):
            kind = self.random.choice(("erase_conversation", "erase_conversation", "erase"))
            delete = {"type": kind, "user_id": user, "conversation_id": conversation}
            late = self.random.choice((-0.5, 0.0, 0.3, 3.0))
            self.after(at + late, partial(self.send, "controls", user, delete))

    def _talk_of(self, request: dict[str, object]) -> dict[str, object]:
        if not self._drawn(self.load.talks):
            return request
        said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": request.pop("prompt")}]
        return {**request, "messages": said, "continue_conversation": True}

    def _whole_of(self, request: dict[str, object]) -> dict[str, object]:
        if request.get("prompt") is None or not self._drawn(self.load.whole):
            return request
        said = [{"role": "user", "content": request.pop("prompt")}]
        return {**request, "messages": said}

    def _conversation_of(self) -> dict[str, object]:
        count = self.load.conversations
        return {"conversation_id": f"k{self.random.randrange(count)}"} if count else {}

    def _note_last(self, at: float, key: tuple[str, str], request: dict[str, object]) -> None:
        """Of each conversation one later request is sent that ends what speaks for ever."""
        if self.load.busy and "not_before" not in request:
            self._last_at[key[0], str(request.get("conversation_id", "default"))] = at
        elif self.load.busy and key not in self.simulation.endless:
            request["max_tokens"] = self.load.tokens  # it may begin behind that one

    def _busy_of(self) -> dict[str, object]:
        if not self.load.busy:
            return {}
        if self._drawn(self.load.busy):
            return {"while_busy": self.random.choice(self.load.busy_words)}
        return {"max_tokens": 150 if self.load.busy_lasts else 100_000} if self.random.random() < 1 / 3 else {}

    def _candidates_of(self, request: dict[str, object]) -> dict[str, object]:
        may_have = "tool_mode" not in request and "agent" not in request
        return {"best_of": self.random.randint(2, 3)} if may_have and self._drawn(self.load.best_of) else {}

    def _drawn(self, share: float) -> bool:
        return bool(share) and self.random.random() < share

    def _same_of(self, number: int) -> dict[str, object]:
        if not self._drawn(self.load.same):
            return {}
        same = {"prompt": "the same question", "max_tokens": self.load.tokens, "temperature": 0}
        if not self.load.same_in:
            return {**same, "conversation_id": f"c{number}"}
        said = [{"role": "user", "content": same["prompt"]}]
        return {**same, "prompt": None, "messages": said, "conversation_id": f"c{number % self.load.same_in}"}

    def _timer_of(self, at: float) -> dict[str, object]:
        if not self._drawn(self.load.timers):
            return {}
        waits_s = self.random.choice(self.load.timers_s)
        self.simulation.keep_running(at + waits_s + _LATEST_S)
        return {"not_before": int((self.simulation.world.now + at + waits_s) * 1000)}

    def _tools_of(self, number: int) -> dict[str, object]:
        if self._drawn(self.load.results):
            return {"tools": TOOLS, "conversation_id": f"t{number}"}
        if self._drawn(self.load.agents):
            return {"agent": "helper"}
        if self._drawn(self.load.programs):
            return {"agent": "desk", "conversation_id": f"p{number}"}
        if self._drawn(self.load.tools):
            times = self.load.tool_times_ms
            time_ms = times[0] if len(times) == 1 else self.random.choice(times)
            return {"tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": time_ms}
        return {"tools": TOOLS} if number % 4 == 3 else {}

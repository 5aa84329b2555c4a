"""Reading a stream as the contract says: no gap, nothing twice, exactly one end."""

from __future__ import annotations

from dataclasses import dataclass, field

from models.interface.generation import Delta, End, Failure, Job, Sampling, Stream, StreamEvent, TokenLogprob

GREEDY = Sampling(temperature=0)


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    ends: list[StreamEvent] = field(default_factory=list)
    cached: int = 0
    prompt_logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def end(self) -> End | Failure:
        assert len(self.ends) == 1
        return self.ends[0]

    @property
    def reason(self) -> str:
        return self.end.code if isinstance(self.end, Failure) else self.end.reason


async def read(stream: Stream, generated: int = 0, *, is_counted: bool = True) -> Answer:
    """`is_counted`: the usage counts the tokens of the stream."""
    answer = Answer()
    async for event in stream:
        assert not answer.ends, "an event after the end"
        assert event.index == generated + len(answer.tokens)
        if isinstance(event, Delta):
            assert event.tokens
            assert not (answer.tokens and event.prompt_logprobs), (
                "log probabilities of the prompt after its first event"
            )
            answer.prompt_logprobs = event.prompt_logprobs or answer.prompt_logprobs
            answer.tokens += event.tokens
            answer.text += event.text
        else:
            answer.ends.append(event)
            if isinstance(event, End):
                answer.text += event.text
                assert event.usage.completion_tokens == event.index or not is_counted
    return answer


def job(prompt, max_tokens=16, **fields) -> Job:
    return Job(**({"id": "r", "prompt": tuple(prompt), "max_tokens": max_tokens, "sampling": GREEDY} | fields))

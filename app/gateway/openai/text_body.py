"""The body of `POST /v1/completions`: prompts as the model reads them, without chat template and memory."""

from __future__ import annotations

from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import invalid
from app.gateway.openai.sampling_body import MAX_CHOICES, SamplingBody, check_size, choices_of, limit_of
from app.wire.request import Request

_MAX_TOKENS = 16
"""OpenAI's default."""

Prompt = str | tuple[int, ...]


class TextBody(SamplingBody, frozen=True, kw_only=True):
    """`logprobs` is the number of the likeliest tokens to report with each token."""

    prompt: str | tuple[str | int | tuple[int, ...], ...]
    echo: bool | None = None
    logprobs: int | None = None

    @property
    def names(self) -> dict[str, str]:
        return {"prompt_token_ids": "prompt", "top_logprobs": "logprobs"}

    @property
    def is_only_echo(self) -> bool:
        """Whether the reply is the prompt alone. A model draws one token at least, which is not shown then."""
        return bool(self.echo) and self.max_tokens == 0

    @property
    def prompts(self) -> list[Prompt]:
        """Raises `ApiError`."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = tuple(one for one in self.prompt if isinstance(one, int))
        prompts = [one for one in self.prompt if not isinstance(one, int)]
        if bool(ids) == bool(prompts):
            raise invalid("prompt", "must be a text, token ids, or a list of one of them")
        return [ids] if ids else [*prompts]

    def requests(self, identity: Identity, *, store: bool = True) -> list[Request]:
        """One request per choice, `n` of each prompt."""
        self.check_tenant(identity)
        prompts, choices = self.prompts, self.choices
        if len(prompts) * choices > MAX_CHOICES:
            raise invalid("prompt", f"prompts and n make more than {MAX_CHOICES} choices")
        firsts = [self._request(identity, prompt, store=store) for prompt in prompts]
        check_size(firsts[0], choices)
        return [request for first in firsts for request in choices_of(first, choices)]

    def _request(self, identity: Identity, prompt: Prompt, *, store: bool) -> Request:
        text = prompt if isinstance(prompt, str) else None
        most = 1 if self.is_only_echo else limit_of(self.max_tokens, unset=_MAX_TOKENS)
        fields = self.fields(identity, store=store, max_tokens=most)
        if self.echo and self.prompt_logprobs is None:
            # The gateway has no tokenizer: the texts of ids come with their log probabilities.
            fields["prompt_logprobs"] = 0 if self.logprobs is None and text is None else self.logprobs
        return Request(
            **fields,
            prompt=text,
            raw=text is not None,
            prompt_token_ids=None if isinstance(prompt, str) else prompt,
            logprobs=None if self.logprobs is None else True,
            top_logprobs=self.logprobs,
        )

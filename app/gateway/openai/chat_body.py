"""The body of `POST /v1/chat/completions`, as OpenAI clients send it."""

from __future__ import annotations

import msgspec

from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import invalid
from app.gateway.openai.messages import OpenAIMessage, asked_by
from app.gateway.openai.sampling_body import REST_OF_CONTEXT, SamplingBody, check_size, choices_of, limit_of
from app.gateway.openai.tools import ChoiceBody, ToolBody, allowed_of
from app.wire.request import Fork, Request, TemplateValues, WhileBusy
from app.wire.tools import ToolMode


class ChatBody(SamplingBody, frozen=True, kw_only=True):
    messages: tuple[OpenAIMessage, ...]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: tuple[ToolBody, ...] | None = None
    tool_choice: str | ChoiceBody | None = None
    parallel_tool_calls: bool | None = None
    tool_mode: ToolMode = ToolMode.CLIENT
    tool_timeout_ms: int | None = None
    not_before: int | None = None
    while_busy: WhileBusy = WhileBusy.QUEUE
    replaces: tuple[str, ...] = ()
    fork: Fork | None = msgspec.field(default=None, name="from")
    reasoning_effort: str | None = None
    chat_template_kwargs: TemplateValues | None = None
    continue_final_message: bool = False
    add_generation_prompt: bool = True
    conversation_id: str | None = None

    @property
    def names(self) -> dict[str, str]:
        return {} if self.max_completion_tokens is None else {"max_tokens": "max_completion_tokens"}

    def requests(self, identity: Identity, *, store: bool = True, conversation: str | None = None) -> list[Request]:
        """One request per choice. The first belongs to the named conversation, each other to one of its own. `store`
        and `conversation` apply if the body has none.
        """
        self.check_tenant(identity)
        if self.top_logprobs and not self.logprobs:
            raise invalid("top_logprobs", "needs logprobs")
        if not self.add_generation_prompt and not self.continue_final_message:
            raise invalid("add_generation_prompt", "false needs continue_final_message")
        if not self.messages and (self.fork is None or self.fork.index is None):
            raise invalid("messages", "is empty")
        choices = self.choices
        first = self._request(identity, store=store, conversation=self.conversation_id or conversation)
        check_size(first, choices)
        return choices_of(first, choices)

    def _request(self, identity: Identity, *, store: bool, conversation: str | None) -> Request:
        most = limit_of(self.max_completion_tokens, self.max_tokens, unset=REST_OF_CONTEXT)
        fields = self.fields(identity, store=store, max_tokens=most)
        if conversation:
            fields["conversation_id"] = conversation
        tools, choice = allowed_of(self.tools, self.tool_choice)
        return Request(
            **fields,
            **asked_by(self.fork, tuple(message.message() for message in self.messages)),
            logprobs=self.logprobs,
            top_logprobs=self.top_logprobs if self.logprobs else None,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=self.parallel_tool_calls if tools else None,
            tool_mode=self.tool_mode,
            tool_timeout_ms=self.tool_timeout_ms,
            not_before=self.not_before,
            while_busy=self.while_busy,
            replaces=self.replaces,
            reasoning_effort=self.reasoning_effort,
            chat_template_kwargs=self.chat_template_kwargs or None,
            continue_final_message=self.continue_final_message,
        )

"""Models ready for requests: an engine, and prompts in the form that the engine takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Unpack

from models.interface.chat import ChatMessage, PastTurn
from models.interface.generation import Delta, Engine, GenerationDefaults, Job
from models.prompts.builder import BuiltPrompt, PromptOptions
from models.prompts.chat_template import TemplateValue
from models.served.model_report import ModelReport
from models.text.reasoning import Reasoning
from models.tools.format import ToolFormat


class Prompts(Protocol):
    """`tool_format` is the form in which the model calls tools; `tool_marker` the id of its trigger if that is a
    special token. `has_single_calls`: a message of its template holds one call only.
    """

    tool_format: ToolFormat
    tool_marker: int | None
    has_single_calls: bool

    def build(
        self,
        system: str,
        memory: Sequence[PastTurn | tuple[str, str]] = (),
        prompt: str | None = None,
        messages: Sequence[ChatMessage] | None = None,
        **how: Unpack[PromptOptions],
    ) -> BuiltPrompt:
        """Token ids of `prompt` or `messages` after `memory`; raises `PromptTooLong` or `PromptError`."""

    def values_of_effort(self, effort: str) -> Mapping[str, TemplateValue]:
        """The variables that make the model reason so much; raises `PromptError` if there are none."""

    def count(self, text: str) -> int:
        """How many tokens `text` has, without chat template."""

    def ids_of(self, text: str, begins: Reasoning | None = None) -> Sequence[int]:
        """The tokens of `text` as a part of an answer that `begins` so: names of special tokens in it are removed."""

    def raw(self, text: str) -> BuiltPrompt:
        """Token ids of `text` without chat template; raises `PromptTooLong`."""

    def of_ids(self, ids: Sequence[int]) -> BuiltPrompt:
        """The prompt of these token ids; raises `PromptTooLong`."""


class TextOf(Protocol):
    def __call__(self, token: int, *, begins: bool = False) -> str:
        """What the token adds to a text, or what a text that `begins` with it has of it."""


class ReadsIds(Protocol):
    def __call__(self, job: Job, ids: Sequence[int]) -> Delta:
        """What readers get of these tokens as the beginning of the job's answer."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """`names` are the values of a request's `model` that mean this one, beside its version; `text_of` is the text of a
    single token, and `unwritten` are the tokens that add none to an answer. `continues`: it can continue an answer that
    another model or worker has begun; `redraws`: if it is sampled, with other words than it would have had.
    `has_logprobs`: its engine reports log probabilities, and can end an answer by them. `forms_follow_reasoning`: its
    engine applies an output constraint behind the reasoning, not from the first token on.

    `reads` is None if the model's words are not known here by their ids.

    `report` says what the model is; None for one that this process does not load, and for an adapter. With `adapter`
    it is a LoRA adapter over the engine's model; `adapter_version` identifies its bytes.
    """

    engine: Engine
    prompts: Prompts
    defaults: GenerationDefaults
    names: frozenset[str]
    text_of: TextOf
    adapter: str = ""
    adapter_version: str = ""
    continues: bool = True
    has_logprobs: bool = False
    forms_follow_reasoning: bool = False
    unwritten: frozenset[int] = frozenset()
    redraws: bool = False
    report: ModelReport | None = None
    reads: ReadsIds | None = None

    @property
    def model_version(self) -> str:
        """Identifies the weights that answer; a resumed answer compares it."""
        base = self.engine.model_version
        return f"{base}+{self.adapter_version}" if self.adapter else base


class ModelRegistry:
    """The served models. The first one answers requests that name none."""

    def __init__(self, *models: ServedModel) -> None:
        """Raises `ValueError` if two models have one name. Of two with the same version the first one continues the
        answers of either: their weights are the same.
        """
        self._all: tuple[ServedModel, ...] = ()
        self._leaving: list[ServedModel] = []
        self.replace(*models)

    def replace(self, *models: ServedModel) -> None:
        """Serve these models from now on; raises `ValueError` as the constructor does, and changes nothing then. Models
        whose engines are not among theirs are `decided` until they are forgotten.
        """
        if not models:
            raise ValueError("no model is served")
        by_name: dict[str, ServedModel] = {}
        for model in models:
            for name in model.names:
                if by_name.setdefault(name, model) is not model:
                    raise ValueError(f"two models have the name {name}")
        for model in models:
            by_name.setdefault(model.model_version, model)
        engines = {model.engine for model in models}
        self._leaving = [one for one in (*self._all, *self._leaving) if one.engine not in engines]
        self._all, self._of = models, by_name

    def forget(self, engine: Engine) -> None:
        """This engine has stopped."""
        self._leaving = [one for one in self._leaving if one.engine is not engine]

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._all)

    @property
    def default(self) -> ServedModel:
        return self._all[0]

    @property
    def engines(self) -> list[Engine]:
        """Each engine once: adapters share that of their model."""
        return list({id(model.engine): model.engine for model in self._all}.values())

    @property
    def names(self) -> list[str]:
        return sorted(self._of)

    def find(self, name: str | None) -> ServedModel | None:
        """The model that `name` means, a name or a model version; None if there is none."""
        return self.default if name is None else self._of.get(name)

    def decided(self, name: str) -> ServedModel | None:
        """As `find`, for an answer that was given to this model before: one that leaves finishes its answers."""
        leaving = (one for one in self._leaving if name in one.names or name == one.model_version)
        return self._of.get(name) or next(leaving, None)

"""Load a worker's models according to the settings."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from parley_client.plugins.discovery import Kind, PluginError
from pydantic import ValidationError

from app.plugins.known import named
from app.policy.file import AUTO_MODEL, DEFAULT_MODEL, NO_POLICY, OWN_ENGINES, ModelSpec, Policy
from app.process.tune_interpreter import uncollected
from app.serving.engine_choice import with_chosen_engine
from app.serving.plugged_engine import plugged_models
from app.settings import Settings
from models.files.adapter_folders import adapter_folders, check_adapter_folders
from models.files.checkpoint import check_folder
from models.files.errors import CheckpointError
from models.interface.generation import GenerationDefaults
from models.served.registry import ModelRegistry, ServedModel
from models.text.token_texts import TokenTexts

if TYPE_CHECKING:
    from models.checkpoints.loading import Checkpoint
    from models.files.adapters import AdapterFiles


class LoadError(Exception):
    """A model cannot be served; the message is one line."""


@dataclass(frozen=True, slots=True)
class WantedModel:
    """A model to load, with settings of its own. It answers to the name of its checkpoint, and to `names`. `share`: of
    the memory for KV caches, 0 to 1; None if no model states one. `spec`: its table in the policy if its files are not
    loaded here; `has_fallback`: another model could answer in its place.
    """

    settings: Settings
    names: frozenset[str]
    is_from_policy: bool = False
    share: float | None = None
    spec: ModelSpec = field(default_factory=ModelSpec)
    has_fallback: bool = False

    @property
    def files(self) -> Hashable:
        """What makes it another model if it changes. Its memory is given to it once."""
        if self.spec.has_files:
            return self.settings, self.is_from_policy
        return min(self.names), msgspec.json.encode(self.spec), self.has_fallback

    @property
    def engine(self) -> str:
        return self.settings.engine if self.spec.has_files else self.spec.engine


def check_folders(settings: Settings, policy: Policy = NO_POLICY) -> None:
    """Check what can be checked without importing torch, which takes seconds; raises `LoadError`."""
    try:
        check_adapter_folders(settings.adapters)
    except ValueError as error:
        raise LoadError(f"PARLEY_ADAPTERS: {error}") from None
    draft = settings.draft_model if settings.speculation == "auto" and settings.engine != "paced" else ""
    loaded = [wanted for wanted in _all_wanted(settings, policy) if wanted.engine != "paced"]
    for wanted in loaded:
        where = f"policy {settings.policy}: models.{min(wanted.names)}.path: " if wanted.is_from_policy else ""
        _check_folder(wanted.settings.model, where)
    _check_folder(draft, "PARLEY_DRAFT_MODEL: ")


def _check_folder(name: str, where: str) -> None:
    try:
        if name:
            check_folder(name)
    except CheckpointError as error:
        raise LoadError(f"{where}{error}") from None


def load_models(settings: Settings, on_fatal: Callable[[str], None], policy: Policy = NO_POLICY) -> ModelRegistry:
    """Load the model, its adapters, and the models of the policy; raises `LoadError`."""
    try:
        return ModelRegistry(*ModelLoader(settings, on_fatal).load(policy))
    except ValueError as error:
        raise LoadError(str(error)) from None


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """The models of a policy, the default one first, each by what it is loaded from."""

    of: Mapping[Hashable, tuple[WantedModel, list[ServedModel]]]

    @property
    def models(self) -> list[ServedModel]:
        return [model for _, models in self.of.values() for model in models]


class ModelLoader:
    """Loads models, and keeps those that the next policy has, too."""

    def __init__(self, settings: Settings, on_fatal: Callable[[str], None]) -> None:
        self._settings = with_chosen_engine(settings)
        self._on_fatal = on_fatal
        self._kept = LoadedModels({})

    def load(self, policy: Policy) -> list[ServedModel]:
        """All models, the default one first; raises `LoadError`."""
        loaded = self.prepare(policy)
        self.keep(loaded)
        return loaded.models

    def keep(self, loaded: LoadedModels) -> None:
        """These are the models that are served from now on."""
        self._kept = loaded

    def prepare(self, policy: Policy) -> LoadedModels:
        """The models that are kept and in this policy, and its new ones. Takes seconds: call it in a thread. Raises
        `LoadError`.
        """
        kept = self._kept.of
        wanted = [*_all_wanted(self._settings, policy), *_elsewhere(self._settings, policy)]
        new = [one for one in wanted if one.files not in kept]
        reserved = sum(one.share or 0.0 for one, _ in kept.values())
        torch = iter(torch_models([one for one in new if one.engine == "torch"], self._on_fatal, reserved))
        fresh = {one.files: next(torch) if one.engine == "torch" else self._alone(one) for one in new}
        return LoadedModels(
            {one.files: (one, fresh[one.files] if one in new else _renamed(one, *kept[one.files])) for one in wanted}
        )

    def _alone(self, wanted: WantedModel) -> list[ServedModel]:
        """By any engine but torch's, whose models share the memory."""
        try:
            plugin = named(Kind.ENGINES, wanted.engine)
            load = plugin.load() if plugin.name in OWN_ENGINES else partial(plugged_models, plugin)
            models: list[ServedModel] = load(wanted, self._on_fatal)
        except PluginError as error:
            raise LoadError(f"policy: models.{min(wanted.names)}: {error}") from None
        return models


def _elsewhere(settings: Settings, policy: Policy) -> Iterator[WantedModel]:
    """The models whose files this process does not load."""
    for name, spec in policy.models.items():
        if not spec.has_files:
            has_fallback = name in policy.fallback.chain
            yield WantedModel(settings, frozenset({name}), is_from_policy=True, spec=spec, has_fallback=has_fallback)


def _renamed(wanted: WantedModel, before: WantedModel, models: Sequence[ServedModel]) -> list[ServedModel]:
    first, *adapters = models
    return [dataclasses.replace(first, names=(first.names - before.names) | wanted.names), *adapters]


def _all_wanted(settings: Settings, policy: Policy) -> list[WantedModel]:
    """The model of the settings first. Models of the policy with the same files and options are loaded once."""
    wanted = [WantedModel(settings, frozenset({DEFAULT_MODEL, AUTO_MODEL}))]
    groups: dict[tuple[Settings, float | None], list[str]] = {}
    same: list[str] = []
    for name, spec in policy.models.items():
        if not spec.has_files:
            continue
        if spec.engine == settings.engine and spec.path == settings.model and not spec.options:
            same.append(name)
        else:
            groups.setdefault((own_settings(settings, name, spec), spec.memory_share), []).append(name)
    wanted[0] = dataclasses.replace(wanted[0], names=wanted[0].names | set(same))
    for (own, share), names in groups.items():
        wanted.append(WantedModel(own, frozenset(names), is_from_policy=True, share=share))
    return _with_shares(wanted)


def _with_shares(wanted: list[WantedModel]) -> list[WantedModel]:
    """Models without a share of their own have equal parts of the rest, if any model states one."""
    stated = [one.share for one in wanted if one.share is not None]
    if not stated:
        return wanted
    rest = (1 - sum(stated)) / max(1, len(wanted) - len(stated))
    return [one if one.share is not None else dataclasses.replace(one, share=rest) for one in wanted]


_ALONE = {"adapters": "", "draft_model": ""}


def own_settings(settings: Settings, name: str, spec: ModelSpec) -> Settings:
    """The settings of a model of the policy; raises `LoadError`."""
    given = settings.model_dump() | spec.options | _ALONE | {"model": spec.path, "engine": spec.engine}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise LoadError(f"policy: models.{name}.{field}: {first['msg']}") from None


def paced_models(wanted: WantedModel, _on_fatal: object) -> list[ServedModel]:
    from models.served.paced import NAME, paced

    model = paced(wanted.settings.paced_tokens_per_s, wanted.settings.model if wanted.is_from_policy else NAME)
    own = frozenset[str]() if wanted.is_from_policy else model.names | {wanted.settings.model}
    return [dataclasses.replace(model, names=own | wanted.names)]


_IMPATIENT_S = 1.0
"""How long a request waits for a server to come back if another model of the fallback chain could answer."""


def remote_models(wanted: WantedModel, _on_fatal: object) -> list[ServedModel]:
    from models.remote import RemoteEngine, RemoteOptions, RemotePrompts
    from models.remote.answer import text_of
    from models.remote.engine import ABSENT

    name, spec = min(wanted.names), wanted.spec
    key = os.environ.get(spec.api_key_env or "", "")
    if spec.api_key_env and not key:
        raise LoadError(f"policy: models.{name}: the environment has no {spec.api_key_env}")
    given = {
        field: getattr(spec, field)
        for field in ("context_length", "max_running", "connect_s", "silence_s", "patience_s", "redraws")
        if getattr(spec, field) is not None
    }
    if wanted.has_fallback:
        given.setdefault("patience_s", _IMPATIENT_S)
    given |= {"azure_version": spec.api_version or "", "has_length": spec.dialect != "triton"}
    options = RemoteOptions(name, spec.model or "", spec.urls, key, spec.dialect == "vllm", **given)
    try:
        engine = RemoteEngine(options)
    except ModuleNotFoundError:
        raise LoadError(f"policy: models.{name}: {ABSENT}") from None
    prompts = RemotePrompts(wanted.settings.conversation_turns, options.context_length)
    vllm = options.is_vllm
    redraws = vllm and options.redraws
    return [ServedModel(engine, prompts, GenerationDefaults(), wanted.names, text_of, continues=vllm, redraws=redraws)]


def torch_models(
    wanted: Sequence[WantedModel], on_fatal: Callable[[str], None], reserved: float = 0.0
) -> list[list[ServedModel]]:
    """Each model, followed by its adapters; raises `LoadError`. `reserved`: the shares of the loaded models."""
    if not wanted:
        return []
    with uncollected():  # torch, which takes seconds
        from models.files.adapters import AdapterError, AdapterFiles

    loaded: list[list[ServedModel]] = []
    try:
        # All weights are in memory before the first engine reserves the rest for its KV cache.
        checkpoints = [_checkpoint(one) for one in wanted]
        drafts = [_draft(one) for one in wanted]
        for number, (one, checkpoint, draft) in enumerate(zip(wanted, checkpoints, drafts, strict=True)):
            adapters = [AdapterFiles.find(*named) for named in adapter_folders(one.settings.adapters).items()]
            beside = len(wanted) - 1 - number
            first = _served(one, checkpoint, on_fatal, adapters, draft, beside=beside, reserved=reserved)
            reserved += one.share or 0.0
            loaded.append([first, *(_adapted(first, files) for files in adapters)])
    except (AdapterError, CheckpointError, ValueError) as error:
        raise LoadError(str(error)) from None
    return loaded


def _checkpoint(wanted: WantedModel) -> Checkpoint:
    settings = wanted.settings
    return _load(settings)(settings.model, context_length=settings.context_length)


def _draft(wanted: WantedModel) -> Checkpoint | None:
    settings = wanted.settings
    if settings.speculation != "auto" or not settings.draft_model:
        return None
    return _load(settings)(settings.draft_model)


def _load(settings: Settings) -> Callable[..., Checkpoint]:
    with uncollected():
        from models.checkpoints.loading import load_checkpoint

    return partial(
        load_checkpoint,
        device=settings.device,
        dtype=settings.dtype,
        quantize=settings.quantize,
        products=settings.products,
        threads=settings.threads,
        remote_code=settings.trust_remote_code,
        by_transformers=False,
    )


def vllm_models(wanted: WantedModel, on_fatal: Callable[[str], None]) -> list[ServedModel]:
    settings = wanted.settings
    from models.checkpoints.loading import describe_checkpoint
    from models.files.adapters import AdapterError, AdapterFiles
    from models.prompts.builder import PromptBuilder
    from models.served.checkpoint_report import report_under_vllm
    from models.vllm import VllmOptions, create_vllm_engine

    for name in ("draft_model", "quantize"):
        if getattr(settings, name):
            raise LoadError(f"PARLEY_{name.upper()} does not apply to PARLEY_ENGINE=vllm; leave it empty")
    try:
        adapters = [AdapterFiles.find(*named) for named in adapter_folders(settings.adapters).items()]
        options = VllmOptions(
            max_running=settings.max_running,
            dtype=settings.dtype,
            kv_cache_gb=settings.kv_cache_gb,
            adapters=adapters,
            more=json.loads(settings.vllm_args or "{}"),
        )
        folder, checkpoint = describe_checkpoint(settings.model, context_length=settings.context_length)
        prompts = PromptBuilder(checkpoint, settings.conversation_turns, settings.tool_format)
        report = report_under_vllm(checkpoint, prompts, settings.dtype)
        engine = create_vllm_engine(str(folder), checkpoint, options, on_fatal)
    except (AdapterError, CheckpointError) as error:
        raise LoadError(str(error)) from None
    texts = TokenTexts(checkpoint.tokenizer)
    first = ServedModel(
        engine,
        prompts,
        checkpoint.defaults,
        _names(wanted, checkpoint),
        texts,
        unwritten=texts.special,
        reads=texts.beginning,
        has_logprobs=True,
        redraws=not options.are_drawn_here,
        report=report,
    )
    return [first, *(_adapted(first, files) for files in adapters)]


def _names(wanted: WantedModel, checkpoint: Checkpoint) -> frozenset[str]:
    """A model of the policy has the name that the policy gives it; its files may be those of another model."""
    return wanted.names if wanted.is_from_policy else wanted.names | {checkpoint.name}


def _adapted(base: ServedModel, files: AdapterFiles) -> ServedModel:
    names = frozenset({files.name})
    version = files.version + getattr(base.engine, "adapter_arithmetic", "")
    return dataclasses.replace(base, names=names, adapter=files.name, adapter_version=version, report=None)


def _served(
    wanted: WantedModel,
    checkpoint: Checkpoint,
    on_fatal: Callable[[str], None],
    adapters: Sequence[AdapterFiles] = (),
    draft: Checkpoint | None = None,
    *,
    beside: int = 0,
    reserved: float = 0.0,
) -> ServedModel:
    """`beside`: how many more engines need a KV cache on the same GPU; `reserved`: their shares so far."""
    with uncollected():
        from models.engine import EngineOptions, SpeculationMode, TorchEngine
        from models.prompts.builder import PromptBuilder
        from models.served.checkpoint_report import report_of_loaded
        from models.text.reasoning import reasoning_tokens

    settings = wanted.settings
    kv_cache_gb, gpu_share = _cache_memory(wanted, checkpoint.model.device.type == "cuda", beside, reserved)
    options = EngineOptions(
        max_running=settings.max_running,
        threads=settings.threads,
        kv_cache_gb=kv_cache_gb,
        speculation=SpeculationMode(settings.speculation),
        draft=draft,
        gpu_share=gpu_share,
    )
    prompts = PromptBuilder(checkpoint, settings.conversation_turns, settings.tool_format)
    engine = TorchEngine(checkpoint, options, on_fatal, adapters)
    texts = TokenTexts(checkpoint.tokenizer)
    return ServedModel(
        engine,
        prompts,
        checkpoint.defaults,
        _names(wanted, checkpoint),
        texts,
        unwritten=texts.special,
        reads=texts.beginning,
        has_logprobs=True,
        forms_follow_reasoning=reasoning_tokens(checkpoint.tokenizer) is not None,
        report=report_of_loaded(checkpoint, prompts, engine, settings.dtype),
    )


_CPU_CACHE_GB = 2.0


def _cache_memory(wanted: WantedModel, is_gpu: bool, beside: int, reserved: float) -> tuple[float, float]:
    """GiB for the KV cache, 0 for what the engine takes by itself, and the part of a GPU's free memory."""
    from models.compute.cache import SHARE_OF_FREE_GPU

    settings, share = wanted.settings, wanted.share
    if share is None:
        return settings.kv_cache_gb, SHARE_OF_FREE_GPU / (1 + beside)
    if settings.kv_cache_gb or not is_gpu:
        return share * (settings.kv_cache_gb or _CPU_CACHE_GB), SHARE_OF_FREE_GPU
    return 0.0, SHARE_OF_FREE_GPU * share / (1 - SHARE_OF_FREE_GPU * reserved)

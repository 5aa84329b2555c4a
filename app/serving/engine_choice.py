"""Which engine `PARLEY_ENGINE=auto` means."""

from __future__ import annotations

import logging
from importlib.util import find_spec

from app.settings import Settings

log = logging.getLogger(__name__)

_OF_TORCH = ("quantize", "draft_model")
"""Settings that only the torch engine has."""


def with_chosen_engine(settings: Settings) -> Settings:
    """The settings with the engine that `auto` means on this machine, which is logged with its reason."""
    if settings.engine != "auto":
        return settings
    engine, why = chosen_engine(settings)
    log.info("PARLEY_ENGINE=auto: %s, because %s", engine, why)
    return settings.model_copy(update={"engine": engine})


def chosen_engine(settings: Settings) -> tuple[str, str]:
    """VLLM where it is installed and a GPU is there, else torch; and the reason."""
    if settings.model == "demo":
        return "torch", "the demo model needs no other"
    if find_spec("vllm") is None:
        return "torch", "vLLM is not installed"
    if not settings.device.startswith(("auto", "cuda")):
        return "torch", f"PARLEY_DEVICE={settings.device}"
    if name := next((name for name in _OF_TORCH if getattr(settings, name)), None):
        return "torch", f"vLLM has no PARLEY_{name.upper()}"
    if not _has_gpu():
        return "torch", "vLLM is installed, but no GPU is there"
    return "vllm", "it is installed and a GPU is there"


def _has_gpu() -> bool:
    from models.machine.gpu import has_gpu  # torch takes seconds, which vLLM would take, too

    return has_gpu()

"""Which LoRA adapters there are: names that requests use, and the folders behind them. Light at import."""

from __future__ import annotations

import re
from pathlib import Path

CONFIG = "adapter_config.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")


def adapter_folders(setting: str) -> dict[str, Path]:
    """`name=folder` names one; a folder alone has one in each subfolder, by its name. Parts are joined with `,`.

    Raises `ValueError` where a name is bad or stands for two folders. Whether there are such folders is for
    `check_adapter_folders` to say: a gateway has the names alone.
    """
    found: dict[str, Path] = {}
    for part in filter(None, (part.strip() for part in setting.split(","))):
        name, named, path = part.partition("=")
        if named:
            pairs = [(name.strip(), Path(path.strip()))]
        else:
            pairs = [(config.parent.name, config.parent) for config in sorted(Path(name).glob(f"*/{CONFIG}"))]
        for adapter, folder in pairs:
            if not _NAME.fullmatch(adapter):
                raise ValueError(f"adapter {adapter!r} of {folder}: a name has letters, digits and ._:/@- only")
            if adapter in found:
                raise ValueError(f"adapter {adapter} stands for {found[adapter]} and for {folder}")
            found[adapter] = folder
    return found


def check_adapter_folders(setting: str) -> None:
    """Raises `ValueError` where a part of the setting stands for no adapter on this machine."""
    for part in filter(None, (part.strip() for part in setting.split(","))):
        found = adapter_folders(part)
        if not found:
            raise ValueError(f"{part}: there is no such folder, or no folder with {CONFIG} in it")
        for name, folder in found.items():
            if not (folder / CONFIG).is_file():
                raise ValueError(f"adapter {name}: there is no {CONFIG} in {folder}")

"""The configured LoRA adapters: names that requests use, and their folders. Imports nothing heavy."""

from __future__ import annotations

import re
from pathlib import Path

CONFIG = "adapter_config.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")


def adapter_folders(setting: str) -> dict[str, Path]:
    """Parse the setting. `name=folder` names one adapter; a folder alone contains one per subfolder, named after it.
    Parts are separated by `,`.

    Raises `ValueError` if a name is invalid or stands for two folders. `check_adapter_folders` checks that the folders
    exist, because a gateway has only the names.
    """
    folders: dict[str, Path] = {}
    for part in filter(None, (part.strip() for part in setting.split(","))):
        name, named, path = part.partition("=")
        if named:
            pairs = [(name.strip(), Path(path.strip()))]
        else:
            pairs = [(config.parent.name, config.parent) for config in sorted(Path(name).glob(f"*/{CONFIG}"))]
        for adapter, folder in pairs:
            if not _NAME.fullmatch(adapter):
                raise ValueError(f"adapter {adapter!r} of {folder}: a name consists of letters, digits and ._:/@-")
            if adapter in folders:
                raise ValueError(f"adapter {adapter} stands for {folders[adapter]} and for {folder}")
            folders[adapter] = folder
    return folders


def check_adapter_folders(setting: str) -> None:
    """Raises `ValueError` if a part of the setting names no adapter on this machine."""
    for part in filter(None, (part.strip() for part in setting.split(","))):
        folders = adapter_folders(part)
        if not folders:
            raise ValueError(f"{part}: there is no such folder, or no folder with {CONFIG} in it")
        for name, folder in folders.items():
            if not (folder / CONFIG).is_file():
                raise ValueError(f"adapter {name}: there is no {CONFIG} in {folder}")

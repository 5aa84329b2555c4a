"""Forms of other packages, beside those of `forms.py`: entry points `parley.tool_formats`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from parley_client.plugins.discovery import Kind, Plugin, PluginError, installed

from models.tools.format import ArgumentStyle, NameStyle, ToolFormat
from models.tools.forms import FORMATS


def form_names(name: str) -> Collection[str]:
    """All names, among which `name` may be; packages are read only for one that is not Parley's own."""
    return [*FORMATS] if name in FORMATS else [*FORMATS, *installed(Kind.TOOL_FORMATS)]


def form_named(name: str) -> ToolFormat:
    """Raises `PluginError` if it cannot be loaded, or is no form."""
    return FORMATS[name] if name in FORMATS else _form_of(installed(Kind.TOOL_FORMATS)[name])


def _form_of(plugin: Plugin) -> ToolFormat:
    described = plugin.load()
    try:
        fields = {one.name: getattr(described, one.name) for one in dataclasses.fields(described)}
        fields |= {"names": NameStyle(described.names), "arguments": ArgumentStyle(described.arguments)}
        form = ToolFormat(name=plugin.name, **fields)
    except (AttributeError, TypeError, ValueError) as error:
        raise PluginError(f"the plug-in {plugin} is no ToolFormat: {error}") from None
    if not form.trigger or not form.middle or (form.arguments is ArgumentStyle.TAGGED and not form.value_end):
        why = "it needs trigger and middle, and tags for tagged values"
        raise PluginError(f"the plug-in {plugin} is no ToolFormat: {why}")
    return form

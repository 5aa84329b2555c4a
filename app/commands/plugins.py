"""`parley plugins`: what other packages bring, and whether it loads."""

from __future__ import annotations

import click
from parley_client.plugins import Kind, PluginError

from app.commands.terminal import WrongUseError, note
from app.plugins.known import known, own
from app.process.printable import printable


@click.command(help="List the plug-ins of other packages, and load each.")
def plugins() -> None:
    wrong = 0
    for kind in Kind:
        try:
            found = [one for one in known(kind).values() if one not in own(kind)]
        except PluginError as error:
            raise WrongUseError(str(error)) from None
        for plugin in found:
            line = f"{kind.removeprefix('parley.')}\t{plugin.name}\t{plugin.package} {plugin.version}\t{plugin.place}"
            try:
                plugin.load()
            except PluginError as error:
                wrong += 1
                line = f"{line}\t{error}"
            click.echo(printable(line))
    if wrong:
        raise WrongUseError(f"{wrong} of the plug-ins cannot be loaded: workers that need them do not start")
    note("a policy or a setting that names one switches it on")

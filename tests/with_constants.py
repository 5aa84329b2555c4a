"""Run one of Parley's commands with other values of constants, in a process of its own:

python -m tests.with_constants app.gateway.edge.bounds.STALL_S=1.5 -- parley gateway
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping


def command_with(constants: Mapping[str, object], *command: str) -> list[str]:
    """The command line that does it; `constants` by their dotted names."""
    given = [f"{name}={json.dumps(value)}" for name, value in constants.items()]
    return [sys.executable, "-m", "tests.with_constants", *given, "--", *command]


def main() -> None:
    constants, command = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    for name, value in (constant.split("=", 1) for constant in constants):
        module, attribute = name.rsplit(".", 1)
        target = importlib.import_module(module)
        assert hasattr(target, attribute), name
        setattr(target, attribute, json.loads(value))
    sys.argv = command
    if command[0] == "faust":
        from faust.cli.faust import cli  # noqa: PLC0415 - the other command does not need it

        cli()
    else:
        from app.commands import main as parley  # noqa: PLC0415 - faust needs no command

        parley()


if __name__ == "__main__":
    main()

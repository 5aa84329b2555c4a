"""Execute the pages of docs/operations and print what became of the answers.

python -m tests.operations [PAGE ...]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from tests.operations.procedures import PROCEDURES
from tests.operations.run import HEAD, Outcome, execute
from tests.operations.shell import PageError


async def main(names: list[str], folder: Path) -> int:
    outcomes: list[Outcome] = []
    failed: list[str] = []
    for name in names:
        procedure = PROCEDURES[name]
        if why := procedure.needs():
            print(f"== {name}: not executed: {why}", flush=True)
            continue
        print(f"== {name}", flush=True)
        try:
            outcomes.append(await execute(procedure, folder / name, lambda line: print(f"   {line}", flush=True)))
        except PageError as error:
            failed.append(name)
            print(f"   FAILED: {error}", flush=True)
        else:
            print(f"{outcomes[-1].line()}\n{outcomes[-1].row()}", flush=True)
    print(f"\n{HEAD}")
    for outcome in outcomes:
        print(outcome.row())
    return int(bool(failed) or not all(outcome.is_right for outcome in outcomes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.operations", description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=", ".join(PROCEDURES))
    parser.add_argument("--keep", type=Path, help="a folder that keeps all logs")
    options = parser.parse_args()
    if unknown := set(options.pages) - set(PROCEDURES):
        parser.error(f"no such page: {', '.join(sorted(unknown))}")
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="parley-operations-", ignore_cleanup_errors=True) as made:
        sys.exit(asyncio.run(main(options.pages or list(PROCEDURES), options.keep or Path(made))))

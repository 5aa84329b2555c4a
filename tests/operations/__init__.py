"""The pages of docs/operations, executed as they stand: `make operations`."""

import sys
from pathlib import Path

# The users of these runs ask with the client package, which Parley's own environment does not have.
if (package := str(Path(__file__).parents[2] / "deploy" / "packages" / "python")) not in sys.path:
    sys.path.append(package)

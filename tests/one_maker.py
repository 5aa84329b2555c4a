"""What several processes of one run need and keep in the checkout, such as npm's packages, is made by one of them.

`npm ci` empties a folder before it fills it: two at once fail with ENOTEMPTY, or one deletes under the other's feet.
So who makes such a thing holds its lock and looks again whether it is there.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.process.folder_lock import locked

PATIENCE_S = 600.0


@contextmanager
def one_maker(made: Path) -> Iterator[None]:
    """Hold the lock of that folder or file; another process waits up to ten minutes."""
    name = hashlib.sha256(str(made.resolve()).encode()).hexdigest()[:16]
    lock = Path(tempfile.gettempdir()) / f"parley-tests-{name}.lock"
    with locked(lock, f"another process makes {made}", lambda _: None, PATIENCE_S):
        yield

"""`python -m tests.gpu --help`"""

from __future__ import annotations

import sys

from tests.gpu.day import main

if __name__ == "__main__":
    sys.exit(main())

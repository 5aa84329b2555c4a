"""A process whose wall clock is wrong by FAULT_CLOCK_SKEW_S seconds: Python imports this before anything else.

The monotonic clock stays right, as it does on a machine whose time was set wrong.
"""

import os
import time

_SKEW_S = float(os.environ.get("FAULT_CLOCK_SKEW_S", "0"))
_time, _time_ns = time.time, time.time_ns

if _SKEW_S:
    time.time = lambda: _time() + _SKEW_S
    time.time_ns = lambda: _time_ns() + int(_SKEW_S * 1e9)

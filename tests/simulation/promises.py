"""The promises that a plug-in can break, in the words in which the kit names them."""

from __future__ import annotations

from typing import NamedTuple

STARTS = "it starts with its settings"
CONTAINED = "each request that it does not refuse has an answer"
ADMITTED = "a request that was admitted is admitted when it is begun again"
PURE = "an answer goes on after a kill where readers are"
ERASED = "an erasure reaches it, and a user's words stay that user's"
WHOLE = "no request is lost, and no answer is torn"
CLEAN = "it costs its worker nothing"
AT_A_TIME = "what is written is there"
GONE = "what has expired is gone"
FOUND = "a search finds the nearest rows, and no others"
TELLS = "it tells texts apart"
SAME = "the same text has the same verdict"
SAME_STEPS = "a program makes the same steps each time"
IN_TIME = "each call is over within its bound"
READABLE = "what it writes it reads, and whatever the bytes are it says so"


class Broken(NamedTuple):
    """A promise that does not hold, and how that shows."""

    promise: str
    sign: str

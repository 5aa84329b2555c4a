"""A model behind any server that speaks OpenAI's chat completions, with the interface of `models.interface.generation`.

The tokens of a prompt are the bytes of the messages as JSON. Those of an answer are the server's ids if it tells them,
which vLLM does, else the UTF-8 bytes of its text (tokens.py): the log of an answer holds all that a next owner needs to
continue it. Three guarantees are weaker than those of an engine in this process. A server draws with noise of its own,
so a resumed sampled answer has other words than it would have had. A server's grammar begins where the answer begins,
and only vLLM can continue an answer at all: the others end as `partial`. And parameters that the server's API lacks are
refused by name.
"""

from models.remote.engine import RemoteEngine, RemoteOptions
from models.remote.prompts import RemotePrompts

__all__ = ["RemoteEngine", "RemoteOptions", "RemotePrompts"]

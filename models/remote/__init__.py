"""A model behind any server that speaks OpenAI's chat completions, with the interface of `models.generation`.

The server returns text and no token ids. So the tokens of a prompt are the bytes of the messages as JSON, and the
tokens of an answer are the UTF-8 bytes of its text: the log of an answer then holds all that a next owner needs to
continue it. Three guarantees are weaker than those of an engine in this process. A server draws with noise of its
own, so a resumed sampled answer continues the existing text, but not with the words that it would have had. Only a
server that knows `continue_final_message` can continue at all; with any other a resumed answer ends as `partial`. And
parameters that the server's API lacks are refused by name.
"""

from models.remote.engine import RemoteEngine, RemoteOptions
from models.remote.prompts import RemotePrompts

__all__ = ["RemoteEngine", "RemoteOptions", "RemotePrompts"]

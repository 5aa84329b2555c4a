"""The one place through which the linear layers of every model go, the vocabulary's among them.

`product` computes a layer from one of its forms: the checkpoint's weights, the same in oneDNN's order (`packed`), or
eight bits (`int8`). `layer` is the module that replaces a model's own, `replacing` puts it there.
"""

from models.linear.kinds import PLAIN, Kind, Products
from models.linear.replacing import replace_layers

__all__ = ["PLAIN", "Kind", "Products", "replace_layers"]

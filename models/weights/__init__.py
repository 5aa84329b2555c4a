"""A weight in one of its forms, and its product with rows: the one place through which the linear layers of every model
go, the vocabulary's among them.

`matrix` multiplies by the checkpoint's weights, by the same in oneDNN's order (`packed`), by the same with a kernel of
Parley's own (`stored`), or by eight bits (`int8`); `choice` measures which is fast here, `rows` with how many rows each
row has the same bits. `gptq` reads the format of AutoGPTQ and GPTQModel, whose product is `int4`; `narrow` has weights
that each product widens. `layer` is the module that replaces a model's own; `replacing` and `gptq_loading` put it
there.
"""

from models.weights.forms import PLAIN, Kind, Products
from models.weights.replacing import replace_layers

__all__ = ["PLAIN", "Kind", "Products", "replace_layers"]

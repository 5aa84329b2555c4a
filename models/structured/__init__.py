"""Output constraints: JSON that conforms to a schema, a regular expression, or one of several choices.

At every token the constraint determines which tokens may come next, and only those are drawn, so every answer conforms.
The grammars are llguidance's. It rejects what it cannot enforce (unlike xgrammar, whose answers violated one schema in
four in the same trial) and computes masks token by token, so that no large automaton is compiled before the first one.
"""

from models.interface.generation import ConstraintError
from models.structured.compiler import ConstraintCompiler
from models.structured.matcher import Matcher

__all__ = ["ConstraintCompiler", "ConstraintError", "Matcher"]

"""Answers of a given shape: JSON of a schema, a regular expression, one of some choices.

At every token the shape says which tokens may come next, and only those are drawn; so what is said always keeps to it,
whatever the model would rather say. Grammars are llguidance's: it refuses what it would not keep to (unlike xgrammar,
whose answers broke one schema in four in the same trial) and works out the tokens step by step, so that nothing large
is compiled before the first one.
"""

from models.structured.grammar import ShapeError
from models.structured.matcher import Matcher
from models.structured.shapes import Shapes

__all__ = ["Matcher", "ShapeError", "Shapes"]

"""Whether a tokenizer can spell what its own vocabulary holds.

A tokenizer with wrong or missing merges answers for every text: with more and shorter tokens, which the model has never
learnt in that order. Nothing fails, and the answers are nonsense. So the text of a token must become that one token. In
real vocabularies a few are never reached.
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders

from models.files.errors import CheckpointError
from models.files.gguf.tokenizer import SPACE
from models.files.gguf.vocabulary import GgufVocabulary, TokenKind

SAMPLE = 20_000
WHOLE = 0.9
"""The least share of the tokens with several characters that are spelled as themselves."""


def check_spelling(tokenizer: Tokenizer, vocabulary: GgufVocabulary) -> None:
    """Raises `CheckpointError` with one line."""
    texts = _texts(vocabulary)
    step = max(1, len(texts) // SAMPLE)
    sample = dict(list(texts.items())[::step])
    encodings = tokenizer.encode_batch(list(sample.values()), add_special_tokens=False)
    whole = []
    for (number, text), encoding in zip(sample.items(), encodings, strict=True):
        if tokenizer.decode(encoding.ids, skip_special_tokens=False) != text:
            raise CheckpointError(
                f"its tokenizer cannot spell its own token {number} ({text!r}); the file is damaged, or of a kind of "
                "tokenizer that is not implemented"
            )
        whole.append(encoding.ids == [number])
    if sum(whole) < WHOLE * len(whole):
        raise CheckpointError(
            f"its tokenizer spells only {sum(whole)} of {len(whole)} of its own tokens as themselves; its "
            f"{'scores' if vocabulary.scores else 'merges'} are damaged or missing"
        )


def _texts(vocabulary: GgufVocabulary) -> dict[int, str]:
    """Of normal tokens with more than one character, by id."""
    byte_level = decoders.ByteLevel()
    texts: dict[int, str] = {}
    for number, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True)):
        if kind != TokenKind.NORMAL or len(token) < 2:
            continue
        if vocabulary.model == "llama":
            if vocabulary.adds_space and not token.startswith(SPACE):
                continue
            text = token.removeprefix(SPACE if vocabulary.adds_space else "").replace(SPACE, " ")
        else:
            text = byte_level.decode([token])
        if text and "�" not in text:  # bytes that are a part of a character
            texts[number] = text
    return texts

"""The tokenizer of a GGUF file, as a `Tokenizer` of the tokenizers package.

SentencePiece's BPE (`llama`) merges the pair whose token has the best score; the rules of a byte-level BPE (`gpt2`) are
listed in the file, and how text is split before is only named there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from models.files.errors import CheckpointError
from models.files.gguf.vocabulary import GgufVocabulary, TokenKind

SPACE = "▁"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class _Split:
    """How a byte-level tokenizer splits text. Without a `pattern`: as GPT-2 does."""

    pattern: str = ""
    single_digits: bool = False
    composes: bool = False  # to Unicode's NFC
    ignores_merges: bool = False  # a word that is a token stays whole


_LLAMA3 = _Split(_WORDS.format(digits="{1,3}"), ignores_merges=True)
_QWEN2 = _Split(_WORDS.format(digits=""), composes=True)
SPLITS = {
    "gpt-2": _Split(),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "smollm": _Split(single_digits=True),
}
"""By the name that llama.cpp gives them."""


def build_tokenizer(vocabulary: GgufVocabulary) -> Tokenizer:
    """Raises `CheckpointError` with one line for a kind of tokenizer that is not implemented."""
    if vocabulary.model == "llama":
        tokenizer = _sentencepiece(vocabulary)
    elif vocabulary.model == "gpt2":
        tokenizer = _byte_level(vocabulary)
    else:
        raise CheckpointError(f"its tokenizer is {vocabulary.model!r}; GGUF's `llama` and `gpt2` are implemented")
    for kind in (TokenKind.CONTROL, TokenKind.USER_DEFINED):
        special = kind is TokenKind.CONTROL
        added = [AddedToken(token, normalized=False, special=special) for token in vocabulary.of_kind(kind)]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)
    bos = vocabulary.token(vocabulary.bos)
    if vocabulary.adds_bos and bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, vocabulary.bos)]
        )
    return tokenizer


def _sentencepiece(vocabulary: GgufVocabulary) -> Tokenizer:
    if not vocabulary.scores:
        raise CheckpointError("its tokenizer is damaged: it has no scores, which order its merges; fetch it again")
    model = models.BPE(
        vocab={token: number for number, token in enumerate(vocabulary.tokens)},
        merges=_merges_by_score(vocabulary),
        unk_token=vocabulary.token(vocabulary.unknown),
        fuse_unk=True,
        byte_fallback=TokenKind.BYTE in vocabulary.kinds,
    )
    tokenizer = Tokenizer(model)
    prefix = [normalizers.Prepend(SPACE)] if vocabulary.adds_space else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if vocabulary.adds_space else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges_by_score(vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    """Every pair of tokens that makes another, the best score first."""
    numbers = {token: number for number, token in enumerate(vocabulary.tokens)}

    def pairs() -> Iterator[tuple[float, int, int, str, str]]:
        for token, kind, score in zip(vocabulary.tokens, vocabulary.kinds, vocabulary.scores, strict=True):
            if kind != TokenKind.NORMAL:
                continue
            for at in range(1, len(token)):
                left, right = token[:at], token[at:]
                if left in numbers and right in numbers:
                    yield -score, numbers[left], numbers[right], left, right

    return [(left, right) for *_, left, right in sorted(pairs())]


def _byte_level(vocabulary: GgufVocabulary) -> Tokenizer:
    split = SPLITS.get(vocabulary.pre)
    if split is None:
        raise CheckpointError(
            f"its tokenizer splits text as {vocabulary.pre or 'unnamed'!r} does; implemented are {', '.join(SPLITS)}"
        )
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in vocabulary.merges)]
    vocab = {token: number for number, token in enumerate(vocabulary.tokens)}
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=split.ignores_merges))
    except Exception as error:  # noqa: BLE001 - the package raises no other class
        raise CheckpointError(f"its tokenizer is damaged: {error}; fetch it again") from None
    if split.composes:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[pre_tokenizers.PreTokenizer] = []
    if split.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if split.pattern:
        steps.append(pre_tokenizers.Split(Regex(split.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split.pattern))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer

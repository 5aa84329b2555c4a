"""The measured cost of a step by its number of tokens: seconds = fixed + each * tokens."""

from __future__ import annotations

SHARE = 0.1  # weight of a new measurement in the estimate of its size class
UNTRIED = 0.3  # so that a draft token that is as likely right as wrong is tried
OUTLIER = 3.0  # a step that takes this many times as long was delayed by something else


class Cost:
    def __init__(self) -> None:
        self._means: dict[int, tuple[float, float]] = {}  # by size class: mean tokens, mean seconds
        self._line: tuple[float, float] | None = None

    def learn(self, tokens: int, seconds: float) -> None:
        size = tokens.bit_length()
        known = self._means.get(size)
        if known is None:
            self._means[size] = float(tokens), seconds
        else:
            seconds = min(seconds, OUTLIER * known[1])
            self._means[size] = known[0] + SHARE * (tokens - known[0]), known[1] + SHARE * (seconds - known[1])
        self._line = None

    @property
    def known(self) -> bool:
        """Whether anything was measured yet; before, the other methods must not be called."""
        return bool(self._means)

    def of(self, tokens: float) -> float:
        """Seconds of a step."""
        fixed, each = self._fit()
        return fixed + each * tokens

    def each(self) -> float:
        """Seconds that one more token adds."""
        return self._fit()[1]

    def _fit(self) -> tuple[float, float]:
        """Least squares through the size classes; with a single one, a fixed share of it is attributed to tokens."""
        if self._line is None:
            points = list(self._means.values())
            x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
            spread = sum((tokens - x) ** 2 for tokens, _ in points)
            each = UNTRIED * y / x
            if spread:
                each = sum((tokens - x) * (seconds - y) for tokens, seconds in points) / spread
            each = min(max(each, 0.0), y / x)
            self._line = y - each * x, each
        return self._line

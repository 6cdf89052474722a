"""Perplexity, and how far one side's predictions are from another's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from openjet_provider.errors import InvalidRequestError
from openjet_provider.evaluation.logits_file import Floats, Tokens, predicted

# Probabilities of the base below e^-16 are left out, as llama-perplexity does: its files do not
# know them. So a mean may come out a little below zero.
_DEPTH = 16.0

PERCENTILES = {"median": 50.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}


class Predictions(Protocol):
    """One side. tokens: [chunks, positions]."""

    tokens: Tokens
    n_vocab: int

    def rows(self, chunk: int) -> Iterator[Floats]:
        """Log-probabilities [n_vocab] at each predicted position of a chunk."""


@dataclass
class Perplexity:
    """Of the tokens that came, each behind what was before it."""

    _losses: list[float] = field(default_factory=list)

    def add(self, log_probs: Floats, token: int) -> None:
        self._losses.append(-float(log_probs[token]))

    def summary(self) -> dict[str, float]:
        """perplexity, and its standard error."""
        value = math.exp(np.mean(self._losses))
        return {"perplexity": value, "error": value * _standard_error(self._losses)}


@dataclass
class Divergence:
    """Kullback-Leibler divergence of predictions from the base's, in nats."""

    _values: list[float] = field(default_factory=list)
    _same_top: int = 0

    def add(self, base: Floats, log_probs: Floats) -> None:
        known = base > -_DEPTH
        p = base[known]
        self._values.append(float(np.dot(np.exp(p), p - log_probs[known])))
        self._same_top += int(base.argmax() == log_probs.argmax())

    def summary(self) -> dict[str, float]:
        """mean, its standard error, percentiles; same_top: share of positions with the same
        likeliest token."""
        found = {"mean": float(np.mean(self._values)), "error": _standard_error(self._values)}
        for name, percent in PERCENTILES.items():
            found[name] = float(np.percentile(self._values, percent))
        return found | {"same_top": self._same_top / len(self._values)}


def _standard_error(values: list[float]) -> float:
    return float(np.std(values)) / math.sqrt(max(len(values) - 1, 1))


def evaluate(
    side: Predictions,
    base: Predictions | None = None,
    save: Callable[[Floats], None] | None = None,
    progress: Callable[[int], None] = lambda chunk: None,
) -> dict[str, Any]:
    """The comparison as JSON has it; without a base, the perplexity alone.

    save: gets every row of `side`; progress: the number of each chunk that is done.
    Raises InvalidRequestError for sides of different texts or vocabularies.
    """
    if base is not None:
        _check_same(side, base)
    chunks, positions = side.tokens.shape
    ours, theirs, divergence = Perplexity(), Perplexity(), Divergence()
    for chunk in range(chunks):
        targets = side.tokens[chunk, 1:][predicted(positions).start :]
        others = [None] * len(targets) if base is None else base.rows(chunk)
        for log_probs, other, token in zip(side.rows(chunk), others, targets, strict=True):
            if save is not None:
                save(log_probs)
            ours.add(log_probs, int(token))
            if other is not None:
                theirs.add(other, int(token))
                divergence.add(other, log_probs)
        progress(chunk + 1)
    found: dict[str, Any] = {
        "chunks": chunks,
        "positions": positions,
        "predictions": chunks * len(predicted(positions)),
        **ours.summary(),
    }
    if base is not None:
        found["base"] = theirs.summary()
        found["kl_divergence"] = divergence.summary()
    return found


def _check_same(side: Predictions, base: Predictions) -> None:
    if side.n_vocab != base.n_vocab:
        raise InvalidRequestError(
            f"the vocabularies differ: {side.n_vocab:,} ids and {base.n_vocab:,} in the base;"
            " compare models with the same tokenizer"
        )
    if not np.array_equal(side.tokens, base.tokens):
        raise InvalidRequestError(
            "the two sides predict different texts; compare files made from the same text with the"
            " same --context"
        )

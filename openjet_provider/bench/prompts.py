"""Prompts made from a seed: source code that nobody has seen, of about a wanted length."""

from __future__ import annotations

import random

_NOUNS = (
    "account buffer channel cursor digest entry frame gauge header index journal kernel ledger"
    " marker node offset packet queue record socket table update vector window"
).split()
_VERBS = "apply build check close count fetch group merge parse push read send sort split".split()


def functions(key: str, count: int) -> list[str]:
    """`count` small functions; the same key gives the same ones, another key different ones."""
    rng = random.Random(key)
    return [_function(rng) for _ in range(count)]


def _function(rng: random.Random) -> str:
    verb, noun, other = rng.choice(_VERBS), rng.choice(_NOUNS), rng.choice(_NOUNS)
    number, limit = rng.randint(2, 999), rng.randint(2, 99)
    return (
        f"def {verb}_{noun}_{number}({noun}, limit={limit}):\n"
        f"    {other}s = [{rng.choice(_VERBS)}_{other}(part) for part in {noun}.parts[:limit]]\n"
        f"    return {other}s or {noun}.{rng.choice(_VERBS)}({rng.randint(0, 9999)})\n"
    )


class Prompts:
    """Prompts of one run.

    seed: of all of them; tokens_per_function: what the model's tokenizer makes of one.
    """

    def __init__(self, seed: int, tokens_per_function: float) -> None:
        self._seed = seed
        self._size = tokens_per_function

    def code(self, key: str, tokens: int) -> str:
        """Source code of about `tokens` tokens. The beginning already depends on the key, so that
        no server has it cached."""
        count = max(1, round(tokens / self._size))
        return f"# module {key}\n" + "\n".join(functions(f"{self._seed} {key}", count))

    def seed(self, key: str) -> int:
        """For the sampling of one request."""
        return random.Random(f"{self._seed} {key}").getrandbits(31)

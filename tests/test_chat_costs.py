"""bench.chat_costs measures what it says: every case runs through, on a small scale."""

from __future__ import annotations

from bench.chat_costs import measure, summary
from openjet_provider.chat.tokenizer import Tokenizer
from tests.chat.conftest import vocabulary
from tests.reference.chat_goldens import OWN_TEMPLATE
from tests.reference.vocabulary import small_vocabulary


def test_summary() -> None:
    assert summary([0.003, 0.001, 0.002], 1e-3) == {"median": 2.0, "worst": 3.0}


def test_a_small_run() -> None:
    tokenizer = Tokenizer(vocabulary(small_vocabulary(512), OWN_TEMPLATE.read_text()))
    found = measure(tokenizer, history=5_000, rounds=2)
    assert found["vocabulary"] == 512
    assert found["follow_up"]["tokens"] >= 5_000
    assert found["follow_up"]["ms"]["median"] > 0
    assert found["parser"]["us_a_token_by_4"]["median"] > 0
    assert set(found["mask"]) == {"call", "json"}
    assert all(case["us"]["median"] > 0 for case in found["mask"].values())

"""docs/defaults.md says what openjet_provider/defaults.py does."""

from __future__ import annotations

from pathlib import Path

import pytest

from openjet_provider import defaults
from openjet_provider.chat.session import _file_sampling
from openjet_provider.errors import ModelFileError


def cells(text: str) -> dict[str, list[str]]:
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip("`"): [cell.strip("` ") for cell in row[1:]] for row in rows}


def test_the_table_states_the_values_in_use(root: Path) -> None:
    table = cells((root / "docs" / "defaults.md").read_text())
    assert table["agents"][0] == str(defaults.AGENTS)
    assert table["kv"][0] == defaults.KV
    assert table["backend"][0] == defaults.BACKEND
    assert table["drafts"][0] == str(defaults.DRAFTS)
    assert table["step_target_ms"][0].startswith(str(defaults.STEP_TARGET))
    assert table["max_queue"][0] == str(defaults.QUEUE)
    assert table["max_queue_client"][0] == str(defaults.QUEUE_CLIENT)
    assert f"at most {defaults.HOST_CACHE >> 30} GB" in table["host_cache"][0]
    assert table["state_bytes"][0] == f"{defaults.STATE_BYTES >> 30} GiB"
    assert table["reasoning_effort"][0].split("`")[0] == defaults.REASONING_EFFORT
    assert table["thinking_budget"][0].startswith(str(defaults.THINKING_BUDGET))
    for row, preset in {
        "Qwen, thinking": defaults.QWEN_THINKING,
        "Qwen, answering without thinking": defaults.QWEN_ANSWERING,
        "openjet-tiny": defaults.OPENJET_TINY,
    }.items():
        values = [float(cell) for cell in table[row]]
        assert values == [
            preset.temperature,
            preset.top_k,
            preset.top_p,
            preset.min_p,
            preset.presence_penalty,
        ]


def test_a_file_may_switch_filters_off_in_llama_cpps_way() -> None:
    file = {"general.sampling.top_k": -1, "general.sampling.penalty_repeat": 0.0}
    found = _file_sampling(file.get)
    assert found["top_k"] == 0
    assert found["repetition_penalty"] is None
    assert _file_sampling({"general.sampling.top_k": 40}.get)["top_k"] == 40


def test_sampling_order_of_a_file() -> None:
    """What a file's sequence leaves out is off; temperature may come last; other orders are
    refused."""
    top_k_first = "penalties;dry;top_k;temperature;top_p;min_p;xtc"
    for sequence in (None, "penalties;temperature;top_k;top_p;min_p", top_k_first):
        found = _file_sampling({"general.sampling.sequence": sequence}.get)
        assert all(value is None for value in found.values())
    file = {"general.sampling.sequence": "temperature;top_p", "general.sampling.top_k": 40}
    found = _file_sampling(file.get)
    assert (found["top_k"], found["min_p"], found["top_p"]) == (0, 0.0, None)
    last = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
    for sequence in (last, "top_k;min_p;temperature"):
        found = _file_sampling({"general.sampling.sequence": sequence}.get)
        assert found["temperature_last"]
        assert found["min_p"] is None
    for key, value, rule in (
        ("sequence", "top_k;top_p;temperature;min_p", "in the order penalties;temp"),
        ("sequence", "temperature;penalties", "in the order penalties;temp"),
        ("mirostat", 2, "mirostat is 2"),
        ("xtc_probability", 0.5, "xtc_probability is 0.5"),
    ):
        with pytest.raises(ModelFileError, match=rule):
            _file_sampling({f"general.sampling.{key}": value}.get)

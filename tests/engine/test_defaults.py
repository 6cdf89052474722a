"""docs/defaults.md says what openjet_provider/defaults.py does."""

from __future__ import annotations

from pathlib import Path

from openjet_provider import defaults
from openjet_provider.chat.session import _file_sampling


def cells(text: str) -> dict[str, list[str]]:
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip("`"): [cell.strip("` ") for cell in row[1:]] for row in rows}


def test_the_table_states_the_values_in_use(root: Path) -> None:
    table = cells((root / "docs" / "defaults.md").read_text())
    assert table["agents"][0] == str(defaults.AGENTS)
    assert table["kv"][0] == defaults.KV
    assert table["backend"][0] == defaults.BACKEND
    assert table["drafts"][0] == str(defaults.DRAFTS)
    assert table["max_queue"][0] == str(defaults.QUEUE)
    assert table["max_queue_client"][0] == str(defaults.QUEUE_CLIENT)
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

"""Say what the recorded GPU runs cover: these native sources or others, which checks, what failed.

GPU runs are bench/results/*.json as bench/gpu/record.py describes them; a run on the emulator is
none. Only reports: a change of native/ makes a record old, it does not make it wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def report(path: Path, record: dict[str, Any], current: str) -> bool:
    """Print what `record` says; whether it verifies the current sources."""
    same = record.get("source_hash") == current
    missing = record.get("unproven")
    says = ["these native sources" if same else "other native sources"]
    says += ["a record of another form"] if missing is None else []
    says += [f"not passed: {', '.join(missing)}"] if missing else []
    says += [f"failed: {', '.join(record['failed'])}"] if record.get("failed") else []
    missed = [goal["measure"] for goal in record.get("goals", []) if goal["holds"] is False]
    says += [f"{len(missed)} goals missed"] if missed else []
    print(f"{path.relative_to(ROOT)}: {record['card']}: {'; '.join(says)}")
    return same and missing == []


def main() -> None:
    command = [sys.executable, str(ROOT / "build.py"), "--hash"]
    current = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    verified = False
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        record = json.loads(path.read_text())
        if not isinstance(record, dict) or "card" not in record or record.get("emulated"):
            continue
        verified |= report(path, record, current)
    print(
        "verified on a GPU" if verified else "not yet verified on a GPU",
        f"(native/ {current[:12]})",
    )


if __name__ == "__main__":
    main()

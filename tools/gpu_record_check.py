"""Say whether a recorded GPU run covers the native sources of this tree.

GPU runs are bench/results/*.json with the keys `card` and `source_hash` (`python build.py --hash`).
Only reports: a change of native/ makes a record old, it does not make it wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    command = [sys.executable, str(ROOT / "build.py"), "--hash"]
    current = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    verified = False
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        record = json.loads(path.read_text())
        if "card" not in record:
            continue
        same = record.get("source_hash") == current
        verified |= same
        says = "these native sources" if same else "other native sources"
        print(f"{path.relative_to(ROOT)}: {record['card']}, recorded with {says}")
    print(
        "verified on a GPU" if verified else "not yet verified on a GPU",
        f"(native/ {current[:12]})",
    )


if __name__ == "__main__":
    main()

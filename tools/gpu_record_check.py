"""Say what the recorded GPU runs cover: these native sources or others, which checks, what failed.

GPU runs are bench/results/*.json as bench/gpu/record.py describes them; a run on the emulator is
none. Only reports: a change of native/ makes a record old, it does not make it wrong.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def build_module() -> ModuleType:
    """build.py of the tree: what it writes down for users is what counts here too."""
    spec = importlib.util.spec_from_file_location("build_of_tree", ROOT / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def changed_since(commit: str) -> list[str]:
    """The folders of native/, tests aside, with files that differ from the commit's; none where git
    or the commit is not at hand."""
    command = ["git", "diff", "--name-only", commit, "--", "native", ":!native/tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    names = done.stdout.split() if done.returncode == 0 else []
    return sorted({Path(name).parent.as_posix() for name in names})


def report(path: Path, record: dict[str, Any], current: str) -> None:
    """Print what `record` says."""
    same = record.get("source_hash") == current
    missing = record.get("unproven")
    changed = [] if same else changed_since(record.get("commit", ""))
    says = ["these native sources" if same else "other native sources"]
    says += [f"changed since: {', '.join(changed)}"] if changed else []
    says += ["a record of another form"] if missing is None else []
    says += [f"not passed: {', '.join(missing)}"] if missing else []
    says += [f"failed: {', '.join(record['failed'])}"] if record.get("failed") else []
    missed = [goal["measure"] for goal in record.get("goals", []) if goal["holds"] is False]
    says += [f"{len(missed)} goals missed"] if missed else []
    print(f"{path.relative_to(ROOT)}: {record['card']}: {'; '.join(says)}")


def main() -> None:
    build = build_module()
    current = build.source_hash()
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        record = json.loads(path.read_text())
        if not isinstance(record, dict) or "card" not in record or record.get("emulated"):
            continue
        report(path, record, current)
    print(
        "verified on a GPU" if build.gpu_runs(current) else "not yet verified on a GPU",
        f"(native/ {current[:12]})",
    )


if __name__ == "__main__":
    main()

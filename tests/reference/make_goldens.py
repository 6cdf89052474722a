"""Writes tests/goldens/logits.npz: logits by llama.cpp on the random models of golden_cases.py.

    python -m tests.reference.make_goldens

Needs llama-cpp-python. Prints the reference model's relative error against each.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from tests.reference import ReferenceModel
from tests.reference.golden_cases import CASES, DRAFTS, LOGITS, POSITIONS, TOKENS, Case
from tests.reference.peer import Peer
from tests.reference.random_model import write_model


def case_arrays(case: Case, path: Path) -> dict[str, np.ndarray]:
    """What is stored of a case: logits of POSITIONS; for float files with an MTP block also its
    logits when it follows TOKENS (row i: token i + 1 with the hidden row of token i), and greedy
    chained drafts after them."""
    with Peer(path) as peer:
        logits, hidden = peer.logits(TOKENS, kv="f32", with_hidden=True)
        arrays = {"logits": logits[POSITIONS]}
        if case.is_float and case.shape.mtp:
            tokens, rows = TOKENS[1:], hidden[:-1]
            mtp_logits, _ = peer.mtp(tokens, rows, 1, kv="f32")
            arrays["mtp"] = mtp_logits[POSITIONS[:-1]]
            token, row = int(logits[-1].argmax()), hidden[-1]
            drafts = []
            for _ in range(DRAFTS):
                tokens, rows = [*tokens, token], np.vstack([rows, row])
                mtp_logits, mtp_hidden = peer.mtp(tokens, rows, 1, kv="f32")
                token, row = int(mtp_logits[-1].argmax()), mtp_hidden[-1]
                drafts.append(token)
            arrays["drafts"] = np.array(drafts)
    return arrays


def main() -> None:
    stored: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            path = Path(folder) / "model.gguf"
            write_model(path, case.shape, case.types, case.seed)
            arrays = case_arrays(case, path)
            exact, _ = ReferenceModel.load(path).forward(TOKENS)
            exact = exact[POSITIONS]
            error = np.linalg.norm(arrays["logits"] - exact) / np.linalg.norm(exact)
            print(f"{case.name:16} {error:.1e}", flush=True)
            stored |= {f"{case.name}/{key}": value for key, value in arrays.items()}
            stored[f"{case.name}/digest"] = np.array(case.digest())
    np.savez_compressed(LOGITS, **stored)


if __name__ == "__main__":
    main()

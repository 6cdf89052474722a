"""`openjet eval`: the statistics, the file format it shares with llama-perplexity, and its runs."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from openjet_provider import models
from openjet_provider.cli import main
from openjet_provider.errors import InvalidRequestError
from openjet_provider.evaluation.compare import evaluate
from openjet_provider.evaluation.logits_file import LogitsFile, LogitsWriter, split
from openjet_provider.evaluation.run import ModelRun, Setting
from tests.reference import ReferenceModel, Rounding

TINY = models.resolve("openjet-tiny")[1]
TEXT = "def add(a, b):\n    return a + b\n\nThe agent reads the file and runs its tests.\n" * 12
VOCABULARY, POSITIONS = 5, 8
TOKENS = np.arange(2 * POSITIONS, dtype=np.int32).reshape(2, POSITIONS) % VOCABULARY


class Given:
    """Predictions that a test makes up."""

    def __init__(self, rows: np.ndarray, tokens: np.ndarray = TOKENS) -> None:
        """rows: log-probabilities [chunks, predictions, vocabulary]."""
        self.tokens, self.n_vocab, self._rows = tokens, rows.shape[2], rows

    def rows(self, chunk: int) -> Iterator[np.ndarray]:
        return iter(self._rows[chunk])


def some(seed: int) -> np.ndarray:
    """Log-probabilities of every prediction of TOKENS."""
    logits = np.random.default_rng(seed).normal(0, 2, (2, POSITIONS // 2 - 1, VOCABULARY))
    return logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def evaluated(*arguments: object, out: pytest.CaptureFixture[str]) -> dict[str, object]:
    """The results of the command with --json, whose record holds no timings and needs none."""
    assert main(["eval", *map(str, arguments), "--json"]) == 0, out.readouterr().err
    record = json.loads(out.readouterr().out)
    assert "longest_wait_s" not in record["machine"]
    return record["results"]


def test_the_statistics_are_what_they_say() -> None:
    q, p = some(1), some(2)
    found = evaluate(Given(q), Given(p))
    targets = TOKENS[:, POSITIONS // 2 + 1 :]
    losses = [-q[c, i, targets[c, i]] for c in range(2) for i in range(POSITIONS // 2 - 1)]
    divergences = (np.exp(p) * (p - q)).sum(axis=2).ravel()
    assert found["predictions"] == 6
    assert found["perplexity"] == pytest.approx(math.exp(np.mean(losses)))
    assert found["kl_divergence"]["mean"] == pytest.approx(divergences.mean())
    assert found["kl_divergence"]["median"] == pytest.approx(np.median(divergences))
    assert found["kl_divergence"]["p99_9"] == pytest.approx(np.percentile(divergences, 99.9))
    assert found["kl_divergence"]["max"] == pytest.approx(divergences.max())
    same = p.argmax(axis=2) == q.argmax(axis=2)
    assert found["kl_divergence"]["same_top"] == pytest.approx(same.mean())


def test_sides_of_other_texts_or_vocabularies_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="different texts"):
        evaluate(Given(some(1)), Given(some(1), TOKENS[::-1]))
    with pytest.raises(InvalidRequestError, match="vocabularies differ"):
        evaluate(Given(some(1)), Given(some(1)[:, :, :-1]))


def test_a_file_is_laid_out_as_llama_perplexity_has_it(tmp_path: Path) -> None:
    """By hand from its source: an odd vocabulary is padded, all is little-endian."""
    row = np.log(np.array([0.5, 0.25, 0.125, 0.125, 1e-9]))
    with LogitsWriter(tmp_path / "base", TOKENS, VOCABULARY) as writer:
        for _ in range(6):
            writer.add(row)
    raw = (tmp_path / "base").read_bytes()
    assert struct.unpack_from("<8siii", raw) == (b"_logits_", POSITIONS, VOCABULARY, 2)
    assert struct.unpack_from("<16i", raw, 20) == tuple(TOKENS.ravel())
    step, lowest, *levels = struct.unpack_from("<ff6H", raw, 20 + 64)
    assert lowest == pytest.approx(math.log(0.5) - 16)  # 1e-9 is cut off there
    assert levels == [65535, *(round((row[i] - lowest) / step) for i in (1, 2, 3)), 0, 0]
    assert len(raw) == 20 + 64 + 6 * (8 + 12)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    rows = some(3)
    with LogitsWriter(tmp_path / "base", TOKENS, VOCABULARY) as writer:
        for row in rows.reshape(-1, VOCABULARY):
            writer.add(row)
    with LogitsFile(tmp_path / "base") as found:
        assert np.array_equal(found.tokens, TOKENS)
        for chunk in (1, 0):
            assert np.stack(list(found.rows(chunk))) == pytest.approx(rows[chunk], abs=16 / 65535)


def test_no_file_is_left_by_a_run_that_fails(tmp_path: Path) -> None:
    writer = LogitsWriter(tmp_path / "base", TOKENS, VOCABULARY)
    writer.add(some(1)[0, 0])
    writer.__exit__(KeyboardInterrupt)
    assert not os.listdir(tmp_path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    good = tmp_path / "base"
    with LogitsWriter(good, TOKENS, VOCABULARY) as writer:
        for row in some(1).reshape(-1, VOCABULARY):
            writer.add(row)
    raw = good.read_bytes()
    damages = {
        "no predictions": b"GGUF" + raw[4:],
        "holds no": raw[:11],
        "cut off": raw[:-1],
        "0 chunks": raw[:16] + bytes(4) + raw[20:],
        "outside its vocabulary": raw[:20] + b"\xff\xff\xff\xff" + raw[24:],
    }
    for message, damage in damages.items():
        good.write_bytes(damage)
        with pytest.raises(InvalidRequestError, match=message):
            LogitsFile(good)
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        LogitsFile(tmp_path / "nowhere")


def test_a_run_predicts_what_the_reference_model_does() -> None:
    """Both halves of a chunk longer than a step, and a second chunk that starts from nothing."""
    positions = 300
    tokens = np.random.default_rng(0).integers(0, 6000, (2, positions)).astype(np.int32)
    with ModelRun(TINY, tokens, Setting(kv="f32", backend="cpu")) as run:
        found = np.stack(list(run.rows(1)))
    assert found.shape == (positions // 2 - 1, run.n_vocab)
    reference = ReferenceModel.load(TINY, Rounding(activations="int8", kv="f32"))

    def predictions(chunk: int) -> np.ndarray:
        exact, _ = reference.forward(tokens[chunk].tolist())
        exact = exact[positions // 2 : positions - 1]
        return np.asarray(exact - np.log(np.exp(exact).sum(axis=1, keepdims=True)))

    exact = predictions(1)
    # How large rounding noise is depends on the weights: small beside another chunk's distance.
    assert np.abs(found - exact).mean() < 0.05 * np.abs(found - predictions(0)).mean()
    assert np.mean(found.argmax(axis=1) == exact.argmax(axis=1)) > 0.9


def test_a_model_against_itself_differs_by_nothing(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [text, "-m", "openjet-tiny", "--base-model", TINY, "--context", 64]
    found = evaluated(*options, out=capsys)
    assert found["perplexity"] == found["base"]["perplexity"]
    divergence = found["kl_divergence"]
    assert divergence == dict.fromkeys(divergence, 0.0) | {"same_top": 1.0}


def test_two_settings_two_runs_or_two_files_say_the_same(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["-m", "openjet-tiny"]
    how = [text, *model, "--context", 64, "--chunks", 3]
    both = evaluated(*how, "--base-kv", "f32", out=capsys)
    q8, f32 = tmp_path / "q8", tmp_path / "f32"
    evaluated(*how, "--save", q8, out=capsys)
    evaluated(*how, "--kv", "f32", "--save", f32, out=capsys)
    one_file = evaluated(*model, "--base", f32, out=capsys)
    two_files = evaluated("--logits", q8, "--base", f32, out=capsys)
    expected = both["kl_divergence"]["mean"]
    assert 0 < expected < 0.02
    for found in (one_file, two_files):
        assert found["kl_divergence"]["mean"] == pytest.approx(expected, rel=0.01)
    same = evaluated("--logits", q8, "--base", q8, out=capsys)["kl_divergence"]
    assert same == dict.fromkeys(same, 0.0) | {"same_top": 1.0}


def test_the_table(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(text), "-m", "openjet-tiny", "--context", "64"]) == 0
    assert "perplexity " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a TEXT file"),
        (["TEXT", "--base", "x"], "holds its own text: leave out text"),
        (["--base", "x", "--base-kv", "f16"], "--base-kv with a second run"),
        (["--logits", "x"], "give --base"),
        (["TEXT", "--context", "3"], "--context 3: give 4 or more"),
        (["TEXT", "--chunks", "0"], "--chunks 0: give 1 or more"),
        (["TEXT", "--context", "100000"], "fewer than one chunk"),
        (["nowhere.txt"], "nowhere.txt cannot be read as text"),
    ],
)
def test_options_that_make_no_comparison(
    arguments: list[str], message: str, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(text) if argument == "TEXT" else argument for argument in arguments]
    assert main(["eval", "-m", "openjet-tiny", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_chunks_longer_than_the_context_are_refused() -> None:
    tokens = split([1] * 8256, 8256, None)
    with pytest.raises(InvalidRequestError, match="smaller --context"):
        ModelRun(TINY, tokens, Setting(kv="f16", backend="cpu"))

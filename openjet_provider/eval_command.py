"""`openjet eval`: what a setting costs in accuracy."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjet_provider import defaults, models
from openjet_provider.errors import InvalidRequestError

if TYPE_CHECKING:
    from openjet_provider.evaluation.compare import Predictions
    from openjet_provider.evaluation.logits_file import Tokens

DESCRIPTION = """\
Perplexity of a text, and how far the next-token probabilities of two engines or two settings are
apart on it (Kullback-Leibler divergence, in nats): mean, median, 99 %, 99.9 %, and how often both
find the same token likeliest. docs/eval.md defines each number.
"""

EPILOG = """\
examples:
  openjet eval -m openjet-tiny book.txt                     perplexity
  openjet eval -m openjet-tiny book.txt --base-kv f32       q8_0 KV (the default) against f32

  llama-perplexity -m M.gguf -f book.txt --kl-divergence-base book.kld
  openjet eval -m M.gguf --base book.kld                    this engine against llama.cpp

  openjet eval -m M.gguf book.txt --backend cpu --save cpu.kld
  openjet eval -m M.gguf --base cpu.kld --backend cuda      or where two runs do not fit at once
"""

KV = ("q8_0", "f16", "f32")
_CONTEXT = 512
_ANOTHER = ("base_model", "base_kv", "base_backend")  # any of them means a second run
_PERCENTILES = {"median": "median", "p99": "99 %", "p99_9": "99.9 %", "max": "most"}


def add_parser(commands: Any) -> None:
    """The command's options."""
    parser = commands.add_parser(
        "eval",
        help="perplexity, and divergence of two engines or settings",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("text", nargs="?", metavar="TEXT", help="a text file")
    side = parser.add_argument_group("what is evaluated")
    side.add_argument("-m", "--model", help="a .gguf file or a name (OPENJET_MODEL)")
    side.add_argument("--kv", choices=KV, default=defaults.KV, help="KV cache (%(default)s)")
    side.add_argument("--backend", choices=("auto", "cpu", "cuda"), default="auto")
    side.add_argument("--device", type=int, default=0, help="CUDA device")
    side.add_argument("--threads", type=int, default=0, help="CPU threads (default one per core)")
    side.add_argument("--logits", metavar="FILE", help="saved predictions instead of a model")
    base = parser.add_argument_group("what it is compared with")
    base.add_argument(
        "--base",
        metavar="FILE",
        help="saved predictions; they hold their text, so TEXT is left out",
    )
    base.add_argument("--base-model", metavar="MODEL", help="another model (default the same)")
    base.add_argument("--base-kv", choices=KV, help="another KV cache (default the same)")
    base.add_argument("--base-backend", choices=("cpu", "cuda"), help="(default the same)")
    how = parser.add_argument_group("how")
    how.add_argument(
        "--context",
        type=int,
        help=f"tokens of a chunk, the second half of which is predicted (default {_CONTEXT})",
    )
    how.add_argument("--chunks", type=int, help="of the text (default all)")
    how.add_argument("--save", metavar="FILE", help="keep the predictions, for --base or --logits")
    how.add_argument("--json", action="store_true", help="print the record instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print; the exit status. Raises OpenJetError for what cannot be evaluated."""
    _check(arguments)
    from openjet_provider.bench import record
    from openjet_provider.evaluation.compare import evaluate
    from openjet_provider.evaluation.logits_file import LogitsWriter

    found = record.describe(timed=False)
    with ExitStack() as opened:
        side, base = _sides(arguments, opened)
        save = None
        if arguments.save:
            path = Path(arguments.save)
            save = opened.enter_context(LogitsWriter(path, side.tokens, side.n_vocab)).add
        found["results"] = evaluate(side, base, save, _progress(len(side.tokens)))
    print(json.dumps(found, indent=1) if arguments.json else _table(found["results"]))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise InvalidRequestError for options that contradict each other."""
    another = [name for name in _ANOTHER if getattr(arguments, name)]
    if arguments.base and another:
        raise InvalidRequestError(
            f"--base compares with a file, --{another[0].replace('_', '-')} with a second run:"
            " give one of them"
        )
    if arguments.logits and not arguments.base:
        raise InvalidRequestError("--logits is compared with a file: give --base FILE too")
    if arguments.base:
        own = {name: getattr(arguments, name) for name in ("text", "context", "chunks")}
        if said := [name for name, value in own.items() if value is not None]:
            raise InvalidRequestError(f"{arguments.base} holds its own text: leave out {said[0]}")
    elif not arguments.text:
        raise InvalidRequestError("give a TEXT file, or --base FILE, which holds one")
    for name, low in (("context", 4), ("chunks", 1)):
        value = getattr(arguments, name)
        if value is not None and not low <= value < 1 << 20:
            raise InvalidRequestError(f"--{name} {value}: give {low} or more")


def _sides(
    arguments: argparse.Namespace, opened: ExitStack
) -> tuple[Predictions, Predictions | None]:
    """What is evaluated, and what it is compared with; both closed with `opened`."""
    from openjet_provider.devices import DeviceLock
    from openjet_provider.evaluation.logits_file import LogitsFile
    from openjet_provider.evaluation.run import ModelRun, Setting

    base: Predictions | None = None
    if arguments.base:
        base = opened.enter_context(LogitsFile(Path(arguments.base)))
    if arguments.logits:
        return opened.enter_context(LogitsFile(Path(arguments.logits))), base
    _, path = models.resolve(arguments.model)
    tokens = _tokens(path, arguments) if base is None else base.tokens
    setting = Setting(
        kv=arguments.kv,
        backend=arguments.backend,
        device=arguments.device,
        threads=arguments.threads,
    )
    asked = [(path, setting)]
    if any(getattr(arguments, name) for name in _ANOTHER):
        if arguments.base_model:
            _, path = models.resolve(arguments.base_model)
        other = replace(
            setting,
            kv=arguments.base_kv or setting.kv,
            backend=arguments.base_backend or setting.backend,
        )
        asked.append((path, other))
    if any(setting.chosen(path) == "cuda" for path, setting in asked):
        opened.callback(DeviceLock(arguments.device, path.name).release)
    runs = [opened.enter_context(ModelRun(path, tokens, setting)) for path, setting in asked]
    return runs[0], runs[1] if len(runs) > 1 else base


def _tokens(path: Path, arguments: argparse.Namespace) -> Tokens:
    """The text as the model at `path` reads it; what it says about special tokens is text."""
    from openjet_provider._native import Model, load
    from openjet_provider.chat.session import model_tokenizer
    from openjet_provider.evaluation.logits_file import split

    try:
        text = Path(arguments.text).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{arguments.text} cannot be read as text: {error}") from error
    model = Model(load("cpu"), path)
    try:
        tokens = model_tokenizer(model).encode(text)
    finally:
        model.close()
    return split(tokens, arguments.context or _CONTEXT, arguments.chunks)


def _progress(chunks: int) -> Callable[[int], None]:
    """On a terminal, a line that counts the chunks."""

    def show(done: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == chunks else ""
            print(f"\rchunk {done} of {chunks}", end=end, file=sys.stderr, flush=True)

    return show


def _table(results: dict[str, Any]) -> str:
    lines = [
        f"{results['predictions']:,} predictions, {results['chunks']} chunks of"
        f" {results['positions']} positions",
        f"perplexity           {results['perplexity']:12.4f} +- {results['error']:.4f}",
    ]
    if "base" in results:
        base, divergence = results["base"], results["kl_divergence"]
        lines += [
            f"perplexity, base     {base['perplexity']:12.4f} +- {base['error']:.4f}",
            f"KL divergence, mean  {divergence['mean']:12.6f} +- {divergence['error']:.6f}",
        ]
        for name, label in _PERCENTILES.items():
            lines.append(f"               {label:6}{divergence[name]:12.6f}")
        lines.append(f"same likeliest token {100 * divergence['same_top']:12.3f} %")
    return "\n".join(lines)

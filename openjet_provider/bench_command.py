"""`openjet bench`: measure an engine, or any OpenAI-compatible server."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjet_provider import defaults
from openjet_provider.errors import InvalidRequestError

if TYPE_CHECKING:
    from openjet_provider.bench.scenarios import Sizes
    from openjet_provider.engine import Engine
    from openjet_provider.remote import RemoteEngine

DESCRIPTION = """\
Measure what agents feel: first token and decode speed of one agent and of several, with short and
long contexts, of follow-ups, beside another's long prompt, behind a shared system prompt, and of
agents that run tools. docs/bench.md defines each number. CAREFUL: the scenario `crew` runs code
that a model wrote, in a temporary folder and with limits, but with your permissions.
"""

EPILOG = """\
examples:
  openjet bench -m openjet-tiny --quick
  openjet bench -m qwen3.8-27b --json bench/results/27b.json
  openjet bench --url http://127.0.0.1:8080     any OpenAI-compatible server (OPENJET_API_KEY)
"""

SCENARIOS = ("one", "short", "long", "beside", "shared", "crew")
_SHORT, _CONTEXT, _ANSWER, _ROUNDS = 256, 20_000, 256, 3
_QUICK = {"agents": 2, "short": 64, "context": 512, "tokens": 24, "rounds": 1}
_ROOM = 1_024  # tokens for the template and for what a size is off
_SILENCE_S = 1_800.0  # servers without keep-alive comments are silent while they read a prompt


def add_parser(commands: Any) -> None:
    """The command's options."""
    parser = commands.add_parser(
        "bench",
        help="measure an engine or a server",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    what = parser.add_argument_group("what is measured")
    what.add_argument("-m", "--model", help="a .gguf file or a name (OPENJET_MODEL)")
    what.add_argument("--url", help="a running server instead; its model is what it serves first")
    what.add_argument("--backend", help="auto (default), cpu or cuda")
    what.add_argument("--kv", help=f"KV cache: {defaults.KV} (default), f16 or f32")
    what.add_argument("--threads", type=int, help="CPU threads")
    what.add_argument("--drafts", type=int, help=f"drafts a step (default {defaults.DRAFTS})")
    what.add_argument("--draft-head", metavar="FILE", help="as of `openjet serve`")
    what.add_argument("--step-target-ms", type=float, metavar="MS", help="as of `openjet serve`")
    how = parser.add_argument_group("how")
    how.add_argument("--agents", type=int, help=f"2-16 at once (default {defaults.AGENTS})")
    how.add_argument("--short", type=int, help=f"tokens of a short context (default {_SHORT})")
    how.add_argument(
        "--context",
        type=int,
        help=f"tokens of a long context (default {_CONTEXT:,}, or what fits)",
    )
    how.add_argument("--tokens", type=int, help=f"tokens of an answer (default {_ANSWER})")
    how.add_argument("--rounds", type=int, help=f"of every scenario (default {_ROUNDS})")
    how.add_argument("--temperature", type=float, default=0.7, help="default %(default)s")
    how.add_argument("--seed", type=int, default=0, help="of all prompts (default %(default)s)")
    how.add_argument(
        "--only",
        action="append",
        choices=SCENARIOS,
        help="this scenario; repeatable (default all)",
    )
    how.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument(
        "--json", metavar="FILE", help="write the record there; - prints it instead of the table"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the table, write the record; the exit status."""
    sizes, rounds = _sizes(arguments)
    from openjet_provider.bench import record
    from openjet_provider.bench.measure import Asker
    from openjet_provider.bench.prompts import Prompts, functions
    from openjet_provider.bench.scenarios import SCENARIOS as RUN
    from openjet_provider.bench.scenarios import Bench

    found = record.describe()
    with _engine(arguments, sizes.agents) as (engine, about):
        sizes = _fitting(sizes, engine.context, arguments.context is not None)
        asker = Asker(engine, arguments.temperature)
        sample = functions(f"sample {arguments.seed}", 40)
        messages = [{"role": "user", "content": "\n".join(sample)}]
        first = asker.ask(messages, 8, 0, "warm-up")
        bench = Bench(asker, Prompts(arguments.seed, first.usage.prompt_tokens / 40), sizes)
        for round_ in range(rounds):
            for name in arguments.only or SCENARIOS:
                print(f"round {round_ + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
                RUN[name](bench, round_)
        results = bench.numbers.summary()
        settings = {
            **asdict(sizes),
            "rounds": rounds,
            "temperature": arguments.temperature,
            "seed": arguments.seed,
        }
        found |= {**about, "settings": settings, "results": results}
        found["engine"] = _counters(engine)
    text = json.dumps(found, indent=1)
    if arguments.json and arguments.json != "-":
        path = Path(arguments.json)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    print(text if arguments.json == "-" else _report(found, record.table(results)))
    return 0


def _sizes(arguments: argparse.Namespace) -> tuple[Sizes, int]:
    from openjet_provider.bench.scenarios import Sizes

    usual = {
        "agents": defaults.AGENTS,
        "short": _SHORT,
        "context": _CONTEXT,
        "tokens": _ANSWER,
        "rounds": _ROUNDS,
    }
    ranges = {
        "agents": (2, 16),
        "short": (16, 1 << 20),
        "context": (64, 1 << 20),
        "tokens": (8, 1 << 16),
        "rounds": (1, 1000),
    }
    chosen = _QUICK if arguments.quick else usual
    values: dict[str, int] = {}
    for name, (low, high) in ranges.items():
        given = getattr(arguments, name)
        values[name] = chosen[name] if given is None else given
        if not low <= values[name] <= high:
            raise InvalidRequestError(f"--{name} {given}: give {low} to {high:,}")
    sizes = Sizes(
        agents=values["agents"],
        short=values["short"],
        context=values["context"],
        answer=values["tokens"],
    )
    return sizes, values["rounds"]


def _fitting(sizes: Sizes, positions: int, said: bool) -> Sizes:
    """Sizes that fit a conversation of this many positions (0: not known). A context that was said
    is not made smaller."""
    from dataclasses import replace

    # A follow-up holds the context and two answers; the writer beside a prompt may write as much
    # as the context behind a short one.
    room = positions - sizes.short - 2 * sizes.answer - _ROOM
    if not positions or sizes.context <= room:
        return sizes
    if said or room < 64:
        raise InvalidRequestError(
            f"--context {sizes.context:,} does not fit: the model's context is {positions:,}"
            f" positions, which leaves {max(room, 0):,} beside --short and two --tokens; give a"
            " smaller one"
        )
    return replace(sizes, context=room)


@contextlib.contextmanager
def _engine(
    arguments: argparse.Namespace, agents: int
) -> Iterator[tuple[Engine | RemoteEngine, dict[str, Any]]]:
    """What is measured, and what the record says of it."""
    names = ("model", "backend", "kv", "threads", "drafts", "draft_head", "step_target_ms")
    options = {name: getattr(arguments, name) for name in names}
    given = {name: value for name, value in options.items() if value is not None}
    if arguments.url:
        if given:
            said = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise InvalidRequestError(f"--url measures a server as it is: leave out {said}")
        from openjet_provider.remote import RemoteEngine

        with RemoteEngine(arguments.url, silence_s=_SILENCE_S) as remote:
            yield remote, {"model": remote.model_name, "url": remote.url}
        return
    from openjet_provider.engine import Engine

    with Engine(agents=agents, **given) as engine:
        about = {"backend": engine.backend, "memory": str(engine.memory), "options": given}
        yield engine, {"model": engine.model_name, **about}


def _counters(engine: Engine | RemoteEngine) -> dict[str, Any] | None:
    """The engine's own counters at the end; None for a server of another kind."""
    from openjet_provider.errors import OpenJetError
    from openjet_provider.monitor.source import Source
    from openjet_provider.remote import RemoteEngine

    if not isinstance(engine, RemoteEngine):
        return asdict(engine.stats())
    source = Source(engine.url)
    try:
        sample = source.read()
    except OpenJetError:
        return None
    finally:
        source.close()
    return {name: sample.get(name) for name in ("version", "backend", "agents", "engine")}


def _report(found: dict[str, Any], table: str) -> str:
    settings, machine = found["settings"], found["machine"]
    where = found.get("url") or found["backend"]
    return (
        f"{found['model']} on {where}: {settings['agents']} agents, contexts of about"
        f" {settings['short']:,} and {settings['context']:,} tokens, answers of"
        f" {settings['answer']}, {settings['rounds']} rounds\n{machine['cpu']},"
        f" {machine['cores']} cores, commit {found['commit']}; before, a thread that only read the"
        f" clock was kept waiting {1e3 * machine['longest_wait_s']:.1f} ms at worst\n\n{table}"
    )

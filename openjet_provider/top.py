"""`openjet top`: who is being served and what they do, live in the terminal."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from openjet_provider.errors import BackendUnavailableError, InvalidRequestError

if TYPE_CHECKING:
    from openjet_provider.monitor.source import Sample, Source

DESCRIPTION = """\
Show a running `openjet serve` live: what each agent does, its speed, context and drafts; the pool,
the queue and the steps; the GPUs. With --run, start a server and agents that work on small
programming tasks, and report what they solved. CAREFUL: --run runs code that a model wrote, in a
temporary folder and with limits on time and memory, but with your permissions.
"""

EPILOG = """\
examples:
  openjet top                           the server on 127.0.0.1:18080
  openjet top --once --json | jq .      one sample for a script
  openjet top --run 4                   a server and four agents, on openjet-tiny
"""

_URL = "http://127.0.0.1:18080"


def add_parser(commands: Any) -> None:
    """The command's options."""
    parser = commands.add_parser(
        "top",
        help="watch a server's agents live",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--url", help=f"the server (OPENJET_BASE_URL, else {_URL})")
    parser.add_argument("--api-key", metavar="KEY", help="the server's key (OPENJET_API_KEY)")
    parser.add_argument("--once", action="store_true", help="show one sample and leave")
    parser.add_argument(
        "--json", action="store_true", help="JSON, a line for each sample, instead of a view"
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="between samples (default %(default)s)",
    )
    crew = parser.add_argument_group("agents to look at")
    crew.add_argument("--run", type=int, dest="crew", metavar="N", help="start N agents (1-8)")
    crew.add_argument(
        "-m", "--model", default="openjet-tiny", help="what they run on (default %(default)s)"
    )
    crew.add_argument("--backend", help="auto (default), cpu or cuda")
    crew.add_argument("--context", type=int, help="positions one conversation may use")
    crew.add_argument(
        "--seconds", type=float, default=300, help="stop them then (default %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Show until Ctrl-C; the exit status."""
    if not 0.1 <= arguments.interval <= 3600:
        raise InvalidRequestError(f"--interval {arguments.interval}: give 0.1 to 3600 seconds")
    if not arguments.json:
        _check_rich()
    try:
        return _run_crew(arguments) if arguments.crew is not None else _watch(arguments)
    except KeyboardInterrupt:
        return 0


def _check_rich() -> None:
    if importlib.util.find_spec("rich") is None:
        raise BackendUnavailableError(
            "openjet top needs rich; install the extra: pip install 'openjet-provider[monitor]'"
            " (--json works without it)"
        )


def _watch(arguments: argparse.Namespace) -> int:
    from openjet_provider.handles import server_url
    from openjet_provider.monitor.source import Source

    source = Source(server_url(arguments.url) or _URL, arguments.api_key)
    try:
        if arguments.once or not (arguments.json or sys.stdout.isatty()):
            _print(source.read(), arguments.json)
            return 0
        first = source.read()
        with _display(arguments.json) as show:
            show(first, "")
            while True:
                time.sleep(arguments.interval)
                show(*_read_again(source))
    finally:
        source.close()


def _read_again(source: Source) -> tuple[Sample | None, str]:
    """A sample, or what to say while the server does not answer."""
    try:
        return source.read(), ""
    except BackendUnavailableError as error:
        return None, str(error)


def _print(sample: Sample, as_json: bool) -> None:
    if as_json:
        print(json.dumps(sample), flush=True)
        return
    from rich.console import Console

    from openjet_provider.monitor.view import render

    console = Console()
    console.print(render(sample, None, console.width, 1000))


Show = Callable[["Sample | None", str], None]


@contextmanager
def _display(as_json: bool) -> Iterator[Show]:
    """A function that shows a sample, or the trouble of having none."""
    if as_json:
        yield (
            lambda sample, trouble: (
                _print(sample, True) if sample else print(f"openjet: {trouble}", file=sys.stderr)
            )
        )
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from openjet_provider.monitor.view import render

    console = Console()
    last: list[Sample] = []  # the newest one and the one before it

    def show(sample: Sample | None, trouble: str) -> None:
        if sample is not None:
            last[:] = [sample, *last[:1]]
        before = last[1] if len(last) > 1 else None
        text = render(last[0], before, console.width, console.height - bool(trouble))
        live.update(Text("\n").join([Text(trouble, "red"), text]) if trouble else text)
        live.refresh()

    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield show


def _run_crew(arguments: argparse.Namespace) -> int:
    from openjet_provider import serve

    serve.check_installed()
    from openjet_provider.monitor import crew as crews
    from openjet_provider.monitor.source import Source

    options = {"backend": arguments.backend, "context": arguments.context}
    with crews.working(arguments.model, arguments.crew, **options) as crew:
        source = Source(crew.url)
        live = sys.stdout.isatty() and not arguments.json
        if live:
            with _display(False) as show:
                last = crews.watch(crew, source, arguments.seconds, lambda seen: show(seen, ""))
        else:
            last = crews.watch(crew, source, arguments.seconds, lambda _: None)
        source.close()
        report = crew.report(last)
    if arguments.json:
        print(json.dumps(report))
    else:
        _print_report(report)
    return 0


def _print_report(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    seconds, engine = report["seconds"], report["engine"]
    table = Table(title=f"{report['model']} on {report['backend']}, {seconds:.1f} s")
    for name in ("task", "solved", "turns", "tokens", "prompt tokens", "reused"):
        left = name in ("task", "solved")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for task in report["tasks"]:
        prompt = task["prompt_tokens"]
        table.add_row(
            task["task"],
            "yes" if task["solved"] else f"no ({task['outcome']})",
            str(task["turns"]),
            str(task["tokens"]),
            str(prompt),
            f"{100 * task['cached_tokens'] / prompt:.0f} %" if prompt else "-",
        )
    steps = max(engine["steps"], 1)
    table.caption = (
        f"{report['solved']} of {report['of']} solved. {engine['rows'] / steps:.1f} rows per step;"
        f" {engine['generated'] / max(seconds, 1e-9):.0f} tokens/s in all, tool runs included."
    )
    console = Console()
    console.print(table)

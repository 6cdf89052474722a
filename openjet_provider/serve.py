"""`openjet serve`: the engine behind HTTP."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
from typing import TYPE_CHECKING, Any

from openjet_provider import defaults, models
from openjet_provider.errors import BackendUnavailableError

if TYPE_CHECKING:
    from openjet_provider.engine import Engine

DESCRIPTION = """\
Serve one model to many clients over HTTP: OpenAI's chat completions, completions and responses,
Anthropic's messages, token counts, Prometheus metrics, JSON statistics and a live page.
docs/server.md describes every endpoint.
"""

EPILOG = """\
examples:
  openjet serve -m openjet-tiny
  curl localhost:18080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hi"}]}'
  OPENJET_BASE_URL=http://127.0.0.1:18080 python my_agents.py    attach LangChain and LiteLLM

exit status: 0 after SIGTERM or Ctrl-C, 1 for an error that the message explains, 70 when the
engine failed and the process has to be started again
"""

_NEEDED = ("starlette", "uvicorn", "prometheus_client")


def add_parser(commands: Any) -> None:
    """The command's options."""
    parser = commands.add_parser(
        "serve",
        help="serve a model over HTTP",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("-m", "--model", help="a .gguf file or a name (OPENJET_MODEL)")
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--agents", type=int, help=f"conversations that run at once (default {defaults.AGENTS})"
    )
    engine.add_argument("--context", type=int, help="positions one conversation may use")
    engine.add_argument("--backend", help="auto (default), cpu or cuda")
    engine.add_argument("--device", type=int, help="CUDA device")
    engine.add_argument("--kv", help=f"KV cache: {defaults.KV} (default), f16 or f32")
    engine.add_argument("--memory-budget", type=int, metavar="BYTES", help="for everything")
    engine.add_argument(
        "--host-cache",
        type=int,
        metavar="BYTES",
        help="of host memory for idle conversations (OPENJET_HOST_CACHE; default a quarter of what"
        " is free, at most 8 GB)",
    )
    engine.add_argument(
        "--state-dir",
        metavar="DIR",
        help="keep conversations there, over restarts too, and allow /slots to save and restore"
        " (OPENJET_STATE_DIR)",
    )
    engine.add_argument(
        "--state-bytes", type=int, metavar="BYTES", help="of its files, at most (default 32 GiB)"
    )
    engine.add_argument("--threads", type=int, help="CPU threads (default one per core)")
    engine.add_argument("--drafts", type=int, help=f"drafts a step (default {defaults.DRAFTS})")
    engine.add_argument(
        "--draft-head",
        metavar="FILE",
        help="token ids, with white space between, that MTP drafts are chosen from (default: of"
        f" large vocabularies the {defaults.DRAFT_HEAD_ROWS:,} most common)",
    )
    engine.add_argument(
        "--step-target-ms",
        type=float,
        metavar="MS",
        help="how long a step may take that reads a prompt while others are answered (default"
        f" {defaults.STEP_TARGET} times one that only answers)",
    )
    engine.add_argument(
        "--max-queue", type=int, help=f"requests that may wait (default {defaults.QUEUE})"
    )
    engine.add_argument(
        "--max-queue-client",
        type=int,
        help=f"of them, of one client (default {defaults.QUEUE_CLIENT})",
    )
    http = parser.add_argument_group("HTTP")
    http.add_argument("--host", default="127.0.0.1", help="address (default %(default)s)")
    http.add_argument("--port", type=int, default=18080, help="port (default %(default)s)")
    http.add_argument(
        "--api-key",
        action="append",
        metavar="KEY",
        help="ask for this key; repeatable (OPENJET_API_KEY, which no process list shows)",
    )
    http.add_argument(
        "--unprotected",
        action="store_true",
        help="allow an address that other machines reach without a key",
    )
    http.add_argument(
        "--cors",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="web page whose scripts may use the server; repeatable (default none)",
    )
    http.add_argument(
        "--alias",
        action="append",
        default=[],
        metavar="NAME",
        help="more names for the model, as a shell pattern ('claude-*'); repeatable",
    )
    http.add_argument(
        "--timeout",
        type=float,
        default=3600,
        metavar="SECONDS",
        help="longest request (default %(default)s)",
    )
    http.add_argument(
        "--max-body",
        type=int,
        default=32 << 20,
        metavar="BYTES",
        help="largest request (default %(default)s)",
    )
    http.add_argument(
        "--drain",
        type=float,
        default=10,
        metavar="SECONDS",
        help="how long running requests may go on after SIGTERM (default %(default)s)",
    )
    http.add_argument(
        "--keep-billing-header",
        action="store_true",
        help="keep the line of changing hashes that Claude Code puts before its system prompt",
    )
    http.add_argument(
        "--private", action="store_true", help="keep tasks and texts out of /v1/stats"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; the exit status. Raises OpenJetError for what cannot be served."""
    check_installed()
    from openjet_provider.engine import Engine, EngineOptions, resolve_options
    from openjet_provider.server.run import bind, check_exposure, serve
    from openjet_provider.server.settings import Settings

    keys = arguments.api_key or [os.environ.get("OPENJET_API_KEY") or ""]
    settings = Settings(
        aliases=tuple(arguments.alias),
        api_keys=tuple(filter(None, keys)),
        origins=tuple(arguments.cors),
        keep_billing_header=arguments.keep_billing_header,
        private=arguments.private,
        request_timeout=arguments.timeout,
        max_body=arguments.max_body,
        drain=arguments.drain,
    )
    names = (
        "agents context backend device kv memory_budget threads drafts max_queue max_queue_client"
        " host_cache state_dir state_bytes draft_head step_target_ms"
    )
    options = {name: getattr(arguments, name) for name in names.split()}
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.INFO)
    check_exposure(arguments.host, settings, arguments.unprotected)
    models.resolve(arguments.model)
    resolve_options(EngineOptions(**options))  # what is wrong is said before anybody connects
    listener = bind(arguments.host, arguments.port)
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def open_engine() -> Engine:
        return Engine(arguments.model, **options)

    def ready(engine: Engine) -> None:
        engine.announce(url)
        print(
            f"{engine.model_name} on {engine.backend}: {engine.agents} agents, context"
            f" {engine.context:,}\nserving {url}/v1\n"
            f"export OPENJET_BASE_URL={url}\nwatch it at {url}/ or with `openjet top`",
            flush=True,
        )

    return serve(open_engine, listener, settings, ready)


def check_installed() -> None:
    """Raise BackendUnavailableError naming the extra when the server's packages are missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise BackendUnavailableError(
            f"openjet serve needs {', '.join(missing)}; install the extra:"
            " pip install 'openjet-provider[server]'"
        )

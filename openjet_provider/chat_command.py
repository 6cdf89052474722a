"""`openjet chat`: talk to a model in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any, TextIO

from openjet_provider.chat.options import chat_request
from openjet_provider.chat.types import ChatDelta, ChatRequest
from openjet_provider.errors import OpenJetError
from openjet_provider.handles import Handles

DESCRIPTION = """\
Talk to a model. Ctrl-C stops an answer; at the prompt it leaves, as Ctrl-D does. /new forgets the
conversation. With --base-url (or OPENJET_BASE_URL) the model of a running `openjet serve` answers.
"""

_DIM, _RESET = "\x1b[2m", "\x1b[0m"


def add_parser(commands: Any) -> None:
    """The command's options."""
    parser = commands.add_parser(
        "chat",
        help="talk to a model in the terminal",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("-m", "--model", help="a .gguf file or a name (OPENJET_MODEL)")
    parser.add_argument("--base-url", metavar="URL", help="a running server (OPENJET_BASE_URL)")
    parser.add_argument("--system", metavar="TEXT", help="instructions before the conversation")
    parser.add_argument("--no-thinking", action="store_true", help="answer at once")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--max-tokens", type=int, help="of thinking and answer together")
    parser.add_argument("--context", type=int, help="positions the conversation may use")
    parser.add_argument("--backend", help="auto (default), cpu or cuda")


def run(arguments: argparse.Namespace) -> int:
    """Talk until the input ends; the exit status."""
    given = {"context": arguments.context, "backend": arguments.backend}
    options = {name: value for name, value in given.items() if value is not None}
    options.setdefault("agents", 1)
    handles = Handles()
    try:
        engine = handles.get(arguments.model, options, arguments.base_url)
        Conversation(engine, arguments, sys.stdin, sys.stdout).run()
    except KeyboardInterrupt:
        print()
    finally:
        handles.close()
    return 0


class Conversation:
    """Questions from `source`, answers to `out`."""

    def __init__(
        self, engine: Any, arguments: argparse.Namespace, source: TextIO, out: TextIO
    ) -> None:
        self._engine = engine
        self._options = {
            "enable_thinking": False if arguments.no_thinking else None,
            "temperature": arguments.temperature,
            "seed": arguments.seed,
            "max_tokens": arguments.max_tokens,
        }
        self._source = source
        self._out = out
        self._terminal = source.isatty() and out.isatty()
        self._system = arguments.system
        self._messages = self._beginning()

    def run(self) -> None:
        """Until the input ends."""
        if self._terminal:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  # line editing and history for input()
            self._write(f"{self._engine.model_name}, context {self._engine.context:,}\n")
        while (line := self._question()) is not None:
            if line == "/new":
                self._messages = self._beginning()
            elif line:
                self._turn(line)

    def _beginning(self) -> list[dict[str, Any]]:
        return [{"role": "system", "content": self._system}] if self._system else []

    def _question(self) -> str | None:
        try:
            line = input("> ") if self._terminal else self._source.readline()
        except EOFError:
            self._write("\n")
            return None
        if not self._terminal and not line:
            return None
        return line.strip()

    def _turn(self, question: str) -> None:
        """One question. What cannot be answered is said, and forgotten."""
        asked = [*self._messages, {"role": "user", "content": question}]
        try:
            answer = self._answer(chat_request(asked, self._options))
        except OpenJetError as error:
            self._write(f"openjet: {error}\n")
            return
        self._messages = [*asked, answer]

    def _answer(self, request: ChatRequest) -> dict[str, Any]:
        texts = {"content": "", "reasoning_content": ""}
        with self._engine.chat(request) as stream:
            try:
                for delta in stream:
                    self._show(delta, texts)
            except KeyboardInterrupt:
                stream.cancel()
                self._write(f"{_RESET if self._terminal else ''} [stopped]")
            speed = stream.stats.tokens_per_second
        self._write("\n" if not self._terminal else f"\n{_DIM}{speed:.1f} tokens/s{_RESET}\n")
        return {"role": "assistant", **texts}

    def _show(self, delta: ChatDelta, texts: dict[str, str]) -> None:
        """Thinking is dim on a terminal and not shown elsewhere."""
        if delta.reasoning and self._terminal:
            self._write(f"{_DIM}{delta.reasoning}{_RESET}")
        texts["reasoning_content"] += delta.reasoning
        if delta.content:
            if self._terminal and texts["reasoning_content"] and not texts["content"]:
                self._write("\n\n")
            self._write(delta.content)
        texts["content"] += delta.content

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

"""The `openjet` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from openjet_provider import (
    __version__,
    bench_command,
    chat_command,
    eval_command,
    pull,
    serve,
    top,
)
from openjet_provider.errors import OpenJetError

DESCRIPTION = """\
Several agents at once on one local model.

In Python:
  from openjet_provider import ChatOpenJet            # LangChain (extra: langchain)
  ChatOpenJet(model="openjet-tiny").invoke("hello")

  import litellm, litellm_openjet                     # LiteLLM (extra: litellm)
  litellm.completion("openjet/openjet-tiny", messages=[{"role": "user", "content": "hello"}])
"""

EPILOG = """\
A model is a path to a .gguf file or a name: openjet-tiny is bundled, for testing and trying the
engine; qwen3.8-27b is looked for in $OPENJET_HOME/models (default ~/.cache/openjet/models) and in
the Hugging Face cache. OPENJET_MODEL sets the default.

examples:
  openjet serve -m openjet-tiny    an OpenAI-compatible server on 127.0.0.1:18080
  openjet chat -m openjet-tiny     talk to a model in the terminal
  openjet pull qwen3.8-27b         download a model
  openjet top                      watch a server's agents live
  openjet bench --quick            measure first tokens and speeds
  openjet eval book.txt            perplexity; what a setting costs in accuracy
  openjet doctor                   what this machine and this installation can do
  openjet doctor openjet-tiny      what is in a model file
  openjet doctor ~/models/my.gguf
"""


def parser() -> argparse.ArgumentParser:
    """The command line and its help."""
    command_line = argparse.ArgumentParser(
        "openjet",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_argument(
        "--version", action="version", version=f"openjet-provider {__version__}"
    )
    commands = command_line.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    doctor = commands.add_parser(
        "doctor",
        help="report on this machine and installation, or on a model file",
        description="Report what was built, what is missing and how to get it; with FILE, what"
        " the file holds and whether this engine serves it.",
    )
    doctor.add_argument("file", nargs="?", metavar="FILE", help="a .gguf file or a model's name")
    doctor.set_defaults(run=_doctor)
    for command in (serve, chat_command, pull, top, bench_command, eval_command):
        command.add_parser(commands)
    return command_line


def _doctor(arguments: argparse.Namespace) -> int:
    from openjet_provider import doctor

    if arguments.file:
        print(doctor.report_file(arguments.file))
        return 0
    text, healthy = doctor.report_machine()
    print(text)
    return 0 if healthy else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 1 for an error the message explains, 130 after Ctrl-C."""
    commands = parser()
    arguments = commands.parse_args(argv)
    if arguments.command is None:
        commands.print_help()
        return 0
    try:
        return int(arguments.run(arguments))
    except OpenJetError as error:
        print(f"openjet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # what a shell reports for a program that Ctrl-C ended


if __name__ == "__main__":
    sys.exit(main())

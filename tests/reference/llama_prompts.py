"""Adds llama.cpp's own rendering of the conversations to tests/goldens/chat.json.

    python -m tests.reference.llama_prompts SOURCE LIBRARIES

SOURCE is the unpacked source distribution of llama-cpp-python 0.3.36, LIBRARIES the folder of
libllama-common.so that it installs. Compiles render_chats.cpp with g++. Prompts are stored as
hashes, and those that llama.cpp refuses or renders otherwise than Hugging Face are printed.
"""

from __future__ import annotations

import argparse
import difflib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from openjet_provider.defaults import REASONING_EFFORT
from tests.reference.chat_goldens import OWN_TEMPLATE, PATH, chat_goldens, other_template, text_hash
from tests.reference.conversations import CONVERSATIONS, Conversation

PROGRAM = Path(__file__).with_name("render_chats.cpp")


def compiled(source: Path, libraries: Path, folder: str) -> Path:
    peer, program = source / "vendor" / "llama.cpp", Path(folder, "render_chats")
    folders = [peer / name for name in ("common", "include", "ggml/include", "vendor")]
    names = ("llama-common", "llama", "ggml", "ggml-base", "ggml-cpu")
    command = ["g++", "-std=c++17", *(f"-I{path}" for path in folders), PROGRAM, "-o", program]
    command += [f"-L{libraries}", *(f"-l{name}" for name in names)]
    subprocess.run(command, check=True)
    return program


def chat(template: str, conversation: Conversation) -> dict[str, Any]:
    variables = {"reasoning_effort": REASONING_EFFORT, **conversation.options}
    return {
        "template": template,
        "messages": [_sent(message) for message in conversation.messages],
        "tools": list(conversation.tools),
        "continues": conversation.continues,
        "enable_thinking": variables.pop("enable_thinking", True),
        "variables": variables,
    }


def _sent(message: Any) -> dict[str, Any]:
    """Arguments as JSON text: llama.cpp takes no others."""
    calls = [
        {**call, "function": {**function, "arguments": json.dumps(function["arguments"])}}
        for call in message.get("tool_calls", ())
        for function in [call["function"]]
    ]
    return {**message, "tool_calls": calls} if calls else dict(message)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("libraries", type=Path)
    args = parser.parse_args()
    templates = {"openjet-tiny": OWN_TEMPLATE, "qwen3.5": other_template(args.source)}
    stored = chat_goldens()
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(args.source, args.libraries, folder)
        for name, path in templates.items():
            chats = [chat(path.read_text(), each) for each in CONVERSATIONS.values()]
            done = subprocess.run(
                [program],
                input=json.dumps(chats),
                env={"LD_LIBRARY_PATH": str(args.libraries)},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found = dict(zip(CONVERSATIONS, json.loads(done.stdout), strict=True))
            golden = stored["templates"][name]
            golden["llama_cpp"] = {
                key: text_hash(each["prompt"]) for key, each in found.items() if "prompt" in each
            }
            report(name, golden["prompts"], found)
    text = json.dumps(stored, ensure_ascii=False, indent=1)
    PATH.write_text(text + "\n", encoding="utf-8")


def report(name: str, expected: dict[str, str], found: dict[str, dict[str, str]]) -> None:
    for key, each in found.items():
        if "error" in each:
            print(f"{name}: {key}: refused: {each['error']}")
        elif expected[key] not in (each["prompt"], text_hash(each["prompt"])):
            print(f"{name}: {key}: differs")
            lines = difflib.unified_diff(
                expected[key].splitlines(), each["prompt"].splitlines(), lineterm=""
            )
            print("\n".join(f"    {line}" for line in lines))


if __name__ == "__main__":
    main()

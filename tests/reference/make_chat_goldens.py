"""Writes tests/goldens/chat.json: prompts as Hugging Face renders them, and llama.cpp's own ids.

    python -m tests.reference.make_chat_goldens SOURCE

SOURCE is the unpacked source distribution of llama-cpp-python 0.3.36 (`pip download --no-deps
--no-binary :all: llama-cpp-python==0.3.36`). From it come the template of Qwen3.5 and the texts and
ids with which llama.cpp tests its pre-tokeniser; neither is stored. Needs transformers.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

from openjet_provider.defaults import REASONING_EFFORT
from tests.reference.chat_goldens import (
    OWN_TEMPLATE,
    PATH,
    other_template,
    text_hash,
    vocabulary_path,
)
from tests.reference.conversations import CONVERSATIONS, Conversation

_SEPARATOR = "\n__ggml_vocab_test__\n"


def rendered(template: str, conversation: Conversation) -> str:
    prompts, _ = render_jinja_template(
        conversations=[[dict(message) for message in conversation.messages]],
        tools=[dict(tool) for tool in conversation.tools] or None,
        chat_template=template,
        continue_final_message=conversation.continues,
        add_generation_prompt=not conversation.continues,
        **{"reasoning_effort": REASONING_EFFORT, **conversation.options},
    )
    return str(prompts[0])


def prompts_of(template: Path) -> tuple[str, dict[str, str]]:
    """The template's hash, and the prompts by conversation."""
    source = template.read_text()
    return text_hash(source), {
        name: rendered(source, conversation) for name, conversation in CONVERSATIONS.items()
    }


def vocabulary_goldens(vocabulary: Path) -> list[dict[str, str]]:
    texts = vocabulary.with_name(vocabulary.name + ".inp").read_bytes().decode().split(_SEPARATOR)
    lines = vocabulary.with_name(vocabulary.name + ".out").read_text().splitlines()
    return [
        {"text": text_hash(text), "ids": line.strip()}
        for text, line in zip(texts[:-1], lines, strict=True)  # a separator ends the last text too
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path)
    source = parser.parse_args().source
    own, own_prompts = prompts_of(OWN_TEMPLATE)
    other, other_prompts = prompts_of(other_template(source))
    hashes = {name: text_hash(prompt) for name, prompt in other_prompts.items()}
    stored = {
        "rendered_by": f"transformers {transformers.__version__}",
        "templates": {
            "openjet-tiny": {"template": own, "prompts": own_prompts},
            "qwen3.5": {"template": other, "prompts": hashes},
        },
        "vocabulary": vocabulary_goldens(vocabulary_path(source)),
    }
    text = json.dumps(stored, ensure_ascii=False, indent=1)
    PATH.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

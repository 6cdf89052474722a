"""Reading tests/goldens/chat.json: what others make of the same conversations and texts.

templates: by name, the template's hash and the prompt of every conversation as Hugging Face renders
    it; in full for openjet-tiny's own template, as a hash for one that is not ours to store.
    llama_cpp: hashes of what llama.cpp renders (llama_prompts.py).
vocabulary: llama.cpp's test texts of its `qwen35` pre-tokeniser: ids, and the hash of the text that
    they stand for, in the vocabulary that comes with them (Qwen2's 151,936 ids).
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent.parent / "goldens" / "chat.json"
OWN_TEMPLATE = Path(__file__).parents[2] / "tools" / "train_tiny" / "chat_template.jinja"

# Folder of llama-cpp-python 0.3.36's unpacked source distribution, for what needs it.
SOURCE_VARIABLE = "LLAMA_CPP_PYTHON_SOURCE"
_MODELS = Path("vendor") / "llama.cpp" / "models"


def chat_goldens() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return stored


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def other_template(source: Path) -> Path:
    return source / _MODELS / "templates" / "Qwen3.5-4B.jinja"


def vocabulary_path(source: Path) -> Path:
    """The vocabulary; its texts and ids lie beside it as .inp and .out."""
    return source / _MODELS / "ggml-vocab-qwen35.gguf"


def source_folder() -> Path | None:
    """Where the environment says that the source distribution is."""
    given = os.environ.get(SOURCE_VARIABLE)
    return Path(given) if given else None

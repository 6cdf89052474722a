"""Names of models and where their files are looked for. Nothing here downloads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from openjet_provider.errors import ModelNotFoundError

DEFAULT_MODEL = "qwen3.8-27b"


@dataclass(frozen=True)
class KnownModel:
    """A name people use: the Hugging Face repository and file that `openjet pull` fetches."""

    repo: str
    file: str


KNOWN = {
    "qwen3.8-27b": KnownModel("ggml-org/Qwen3.8-27B-GGUF", "Qwen3.8-27B-Q4_K_M.gguf"),
}

BUNDLED = {"openjet-tiny": "openjet-tiny.gguf"}


def default_model() -> str:
    """What `model=None` means: OPENJET_MODEL, else qwen3.8-27b."""
    return os.environ.get("OPENJET_MODEL") or DEFAULT_MODEL


def openjet_home() -> Path:
    """`OPENJET_HOME`, by default ~/.cache/openjet."""
    return Path(os.environ.get("OPENJET_HOME") or "~/.cache/openjet").expanduser()


def _hub_cache() -> Path:
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    return Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser() / "hub"


def _is_path(model: str) -> bool:
    return model.endswith(".gguf") or os.sep in model


def _candidates(name: str) -> list[Path]:
    """Files that would be this model, best first; globs are expanded."""
    if name in BUNDLED:
        return [Path(__file__).parent / "data" / BUNDLED[name]]
    models = openjet_home() / "models"
    found = [models / f"{name}.gguf"]
    if known := KNOWN.get(name):
        found.append(models / known.file)
        folder = _hub_cache() / f"models--{known.repo.replace('/', '--')}" / "snapshots"
        snapshots = folder.glob(f"*/{known.file}")
        found += sorted(snapshots, key=lambda path: path.lstat().st_mtime, reverse=True)
    return found


def resolve(model: str | os.PathLike[str] | None) -> tuple[str, Path]:
    """(served name, real path) of a path or a name; None means `default_model()`.

    Raises ModelNotFoundError with the places searched and three ways out.
    """
    text = os.fspath(model) if model is not None else default_model()
    if _is_path(text):
        path = Path(text).expanduser()
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise ModelNotFoundError(f"model file {path} {what}; give the path of a .gguf file")
        return path.stem, path.resolve()
    for path in _candidates(text):
        if path.is_file():
            return text, path.resolve()
    raise ModelNotFoundError(_not_found(text))


def _not_found(name: str) -> str:
    known = ", ".join(sorted({*KNOWN, *BUNDLED}))
    places = [str(openjet_home() / "models" / f"{name}.gguf")]
    if entry := KNOWN.get(name):
        places.append(str(openjet_home() / "models" / entry.file))
        places.append(f"{_hub_cache()}/models--{entry.repo.replace('/', '--')}")
    pull = f"openjet pull {name if name in KNOWN else DEFAULT_MODEL}"
    return (
        f"no model file for '{name}' (known names: {known}). Searched:\n"
        + "".join(f"  {place}\n" for place in places)
        + f"Ways out: run `{pull}`, set OPENJET_MODEL=/path/to/file.gguf, or use"
        ' model="openjet-tiny" (bundled, for trying and testing)'
    )

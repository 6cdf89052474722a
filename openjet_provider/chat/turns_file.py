"""Remembered turns in a file of the state directory, so that prompts of conversations that the
engine has kept over a restart are spelled with the same tokens again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from array import array
from pathlib import Path

from openjet_provider.chat.history import History, Turn
from openjet_provider.chat.tokenizer import Vocabulary

log = logging.getLogger("openjet_provider")

_NAME = ".turns"
_FORMAT = 1
_MAX_BYTES = 256 << 20


def save_turns(folder: Path, history: History, vocabulary: Vocabulary) -> None:
    """Replace the file at once. A folder that cannot be written is one line in the log."""
    records = [
        {
            "keys": [key.hex() for key in keys],
            "tokens": list(turn.tokens),
            "reasoning": turn.reasoning,
        }
        for keys, turn in history.records()
    ]
    body = "\n".join(map(json.dumps, records)).encode()
    header = {"format": _FORMAT, "vocabulary": _digest(vocabulary), "checksum": _checksum(body)}
    temporary = folder / f"{_NAME}.openjet-tmp"
    try:
        with open(temporary, "wb", opener=_private) as file:
            file.write(json.dumps(header).encode() + b"\n" + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / _NAME)
    except OSError as error:
        log.warning("remembered turns are not kept: %s", error)
        with contextlib.suppress(OSError):
            temporary.unlink()


def load_turns(folder: Path, history: History, vocabulary: Vocabulary) -> None:
    """Remember what `save_turns` wrote. A file that is of no use is one line in the log."""
    path = folder / _NAME
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("larger than any that is written")
        head, _, body = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        if header["format"] != _FORMAT:
            raise ValueError(f"format {header['format']}; this version reads {_FORMAT}")
        if header["vocabulary"] != _digest(vocabulary):
            raise ValueError("another model's")
        if header["checksum"] != _checksum(body):
            raise ValueError("damaged")
        for line in body.splitlines():
            record = json.loads(line)
            turn = Turn(array("i", record["tokens"]), record["reasoning"])
            history.add([bytes.fromhex(key) for key in record["keys"]], turn)
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        log.warning("ignored: %s: %s", path, error)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _checksum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def _digest(vocabulary: Vocabulary) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for token in vocabulary.tokens:
        digest.update(token if isinstance(token, bytes) else token.encode("utf-8", "replace"))
        digest.update(b"\0")
    return digest.hexdigest()

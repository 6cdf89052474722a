"""The native library through cffi in ABI mode: loading, checks, errors, model metadata.

Nothing here runs at import; `load()` opens a library once per process and kind.
"""

from __future__ import annotations

import functools
import os
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from openjet_provider import _build_info, errors

Kind = Literal["cpu", "cuda"]

_ERRORS: dict[str, type[errors.OpenJetError]] = {
    "OJ_ERR_INVALID": errors.InvalidRequestError,
    "OJ_ERR_IO": errors.ModelNotFoundError,
    "OJ_ERR_FORMAT": errors.ModelFileError,
    "OJ_ERR_UNSUPPORTED": errors.ModelFileError,
    "OJ_ERR_MEMORY": errors.OutOfMemoryError,
    "OJ_ERR_BUSY": errors.EngineBusyError,
    "OJ_ERR_CONTEXT": errors.ContextOverflowError,
    "OJ_ERR_CLOSED": errors.EngineClosedError,
    "OJ_ERR_FAULT": errors.EngineLost,
}


@dataclass(frozen=True)
class Native:
    """One opened library: `ffi` and `lib` as cffi gives them. Calls release the GIL."""

    kind: Kind
    ffi: Any
    lib: Any

    def check(self, status: int, error: Any) -> None:
        """Raise what `status` means with the message in `error` (an `oj_error *`)."""
        if status == self.lib.OJ_OK:
            return
        message = self.ffi.string(error.message).decode("utf-8", "replace")
        for name, cls in _ERRORS.items():
            if status == getattr(self.lib, name):
                raise cls(message)
        raise errors.OpenJetError(f"native status {status}: {message}")

    def call(self, function: str, *args: Any) -> None:
        """Call `function(*args, error)` and raise if it fails."""
        error = self.ffi.new("oj_error *")
        self.check(getattr(self.lib, function)(*args, error), error)


def declarations(header: Path) -> str:
    """What cffi parses of openjet.h."""
    match = re.search(r"cdef begin.*?\*/(.*)/\* -- cdef end", header.read_text("utf-8"), re.DOTALL)
    if match is None:
        raise errors.BackendUnavailableError(f"{header} has no cdef section; reinstall the package")
    return match[1]


@functools.cache
def load(kind: Kind) -> Native:
    """The library of `kind`, checked against the header it was installed with.

    Raises BackendUnavailableError with the build's own record if it is missing or does not match.
    """
    if sys.platform != "linux":
        raise errors.BackendUnavailableError(
            f"openjet-provider runs on Linux x86-64 (WSL2 included), not on {sys.platform}"
        )
    path = _build_info.library(kind)
    if not path.exists():
        raise errors.BackendUnavailableError(
            f"{path} does not exist.\n{_build_info.describe_build()}"
        )
    return open_library(kind, path)


def open_library(kind: Kind, path: Path) -> Native:
    """The library at `path`, checked against the installed header; tests have some of their own.

    Raises BackendUnavailableError if it cannot be loaded or does not match.
    """
    import cffi

    ffi = cffi.FFI()
    text = declarations(_build_info.HEADER)
    ffi.cdef(text)
    try:
        lib: Any = ffi.dlopen(os.fspath(path))
    except OSError as error:
        raise errors.BackendUnavailableError(
            f"{path} cannot be loaded: {error}\n{_build_info.describe_build()}"
        ) from error
    structs = re.findall(r"^typedef struct (\w+) \{", text, re.MULTILINE)
    stale = [name for name in structs if lib.oj_sizeof(name.encode()) != ffi.sizeof(name)]
    if lib.oj_abi_version() != lib.OJ_ABI_VERSION or stale:
        raise errors.BackendUnavailableError(
            f"{path} was built from another version of openjet.h"
            f" ({', '.join(stale) or 'ABI version'}); run `python build.py` or reinstall"
        )
    return Native(kind, ffi, lib)


# GGUF value types as struct formats; 8 is a string, 9 an array.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"
_STRING, _ARRAY = 8, 9


class Model:
    """A mapped model file. Immutable and usable from any thread until `close()`."""

    def __init__(self, native: Native, path: Path) -> None:
        self.native = native
        self.path = path
        out = native.ffi.new("oj_model **")
        native.call("oj_model_open", os.fsencode(path), out)
        self.handle = out[0]
        self.info = native.ffi.new("oj_model_info *")
        native.lib.oj_model_get_info(self.handle, self.info)

    def close(self) -> None:
        """Unmap the file. Engines and backends on it must be closed before."""
        if self.handle is not None:
            self.native.lib.oj_model_close(self.handle)
            self.handle = None

    def metadata(self, key: str) -> Any:
        """The value of a metadata key (number, bool, str, list, list of bytes) or None."""
        meta = self.native.ffi.new("oj_meta *")
        if not self.native.lib.oj_model_meta(self.handle, key.encode(), meta):
            return None
        raw = bytes(self.native.ffi.buffer(meta.data, meta.size)) if meta.size else b""
        if meta.type == _STRING:
            return raw.decode("utf-8", "replace")
        if meta.type != _ARRAY:
            return struct.unpack("<" + _SCALARS[meta.type], raw)[0]
        if meta.element_type == _STRING:
            return _split_strings(raw, meta.count)
        return list(struct.unpack(f"<{meta.count}{_SCALARS[meta.element_type]}", raw))

    def keys(self) -> list[str]:
        """Metadata keys in file order."""
        meta = self.native.ffi.new("oj_meta *")
        keys: list[str] = []
        while self.native.lib.oj_model_meta_at(self.handle, len(keys), meta):
            keys.append(self.native.ffi.unpack(meta.key, meta.key_size).decode("utf-8", "replace"))
        return keys

    def tensors(self) -> list[tuple[str, str, int, int, int]]:
        """(name, type, rows, columns, bytes) of every tensor in file order."""
        info = self.native.ffi.new("oj_tensor_info *")
        tensors: list[tuple[str, str, int, int, int]] = []
        text = self.native.ffi.string
        while self.native.lib.oj_model_tensor_at(self.handle, len(tensors), info):
            name, kind = text(info.name).decode(), text(info.type).decode()
            tensors.append((name, kind, info.rows, info.cols, info.bytes))
        return tensors


def _split_strings(raw: bytes, count: int) -> list[bytes]:
    length = struct.Struct("<Q").unpack_from
    strings: list[bytes] = []
    at = 0
    for _ in range(count):
        (size,) = length(raw, at)
        strings.append(raw[at + 8 : at + 8 + size])
        at += 8 + size
    return strings

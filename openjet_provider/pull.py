"""`openjet pull`: a model file from the Hugging Face hub into the place where names are found."""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from openjet_provider import models
from openjet_provider.errors import BackendUnavailableError, DownloadError, InvalidRequestError

if TYPE_CHECKING:
    import httpx

DESCRIPTION = """\
Download a model file. The size is shown first; a download that was interrupted goes on where it
stopped. HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE mean what they mean to Hugging Face's own tools.
"""

EPILOG = """\
examples:
  openjet pull qwen3.8-27b
  openjet pull my-model --repo someone/My-Model-GGUF --file My-Model-Q4_K_M.gguf
"""

_PIECE = 1 << 20
_ATTEMPTS = 6
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STOPPED = 130  # what shells report for Ctrl-C


def add_parser(commands: Any) -> None:
    """The command's options."""
    parser = commands.add_parser(
        "pull",
        help="download a model file",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    known = ", ".join(models.KNOWN)
    parser.add_argument(
        "name", help=f"what to call it: {known}, or any name with --repo and --file"
    )
    parser.add_argument("--repo", metavar="OWNER/NAME", help="repository on the hub")
    parser.add_argument("--file", help="file in the repository")
    parser.add_argument("--revision", default="main", help="branch, tag or commit (default main)")


def run(arguments: argparse.Namespace) -> int:
    """Download, or say that the file is there; the exit status."""
    if arguments.name in models.BUNDLED:
        print(f"{arguments.name} comes with this package; there is nothing to download")
        return 0
    source = choose_source(arguments.name, arguments.repo, arguments.file, arguments.revision)
    try:
        path = download(source)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return _STOPPED
    print(f"{path}\nopenjet serve -m {arguments.name}")
    return 0


@dataclass(frozen=True)
class Source:
    """A file on the hub, and where it goes."""

    repo: str
    file: str
    revision: str
    path: Path


def choose_source(name: str, repo: str | None, file: str | None, revision: str) -> Source:
    """Raises InvalidRequestError for a name that is not known and not explained."""
    if not re.fullmatch(r"[\w.-]+", name):
        raise InvalidRequestError(f"{name!r} is no name for a model: use letters, digits, . _ -")
    known = models.KNOWN.get(name)
    if known is not None:
        repo, file = repo or known.repo, file or known.file
    if repo is None or file is None:
        raise InvalidRequestError(
            f"'{name}' is not one of {', '.join(models.KNOWN)}; say where it is with --repo"
            " OWNER/NAME and --file FILE.gguf"
        )
    usual = known is not None and (repo, file) == (known.repo, known.file)
    folder = models.openjet_home() / "models"
    return Source(repo, file, revision, folder / (file if usual else f"{name}.gguf"))


def download(source: Source) -> Path:
    """The file, complete and checked. Raises DownloadError with what is wrong and the way out."""
    _check_installed()
    from huggingface_hub import get_token, hf_hub_url

    url = hf_hub_url(source.repo, source.file, revision=source.revision)
    found = _look_up(url, source)
    size, etag = found.size, found.etag
    if not size or not etag:
        raise DownloadError(f"the hub does not say how large {source.file} is; try again later")
    path = source.path
    _say(f"{source.repo}/{source.file} at {found.commit_hash or source.revision}: {_size(size)}")
    if path.is_file() and path.stat().st_size == size:
        _say("already there")
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{etag[:12]}.partial")
    with partial.open("ab") as file:
        _lock(file, partial)
        have = file.tell()
        _check_space(path.parent, size - have, have)
        _fetch(url, get_token(), file, size)
        file.flush()
    _check(partial, size, etag)
    partial.replace(path)
    return path


def _check_installed() -> None:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise BackendUnavailableError(
            "openjet pull needs huggingface-hub; install the extra:"
            " pip install 'openjet-provider[pull]'"
        )


def _look_up(url: str, source: Source) -> Any:
    """The file's size, hash and commit."""
    from huggingface_hub import errors, get_hf_file_metadata

    what = f"{source.repo}/{source.file} (revision {source.revision})"
    by_hand = f"or download the file elsewhere and put it at {source.path}"
    try:
        return get_hf_file_metadata(url)
    except errors.OfflineModeIsEnabled:
        raise DownloadError(f"HF_HUB_OFFLINE is set: unset it to download, {by_hand}") from None
    except (errors.GatedRepoError, errors.RepositoryNotFoundError) as error:
        raise DownloadError(
            f"the hub has no {source.repo} for you: check --repo, or, if it is private or gated,"
            " accept its terms and set HF_TOKEN (or run `hf auth login`)"
        ) from error
    except (errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        raise DownloadError(f"there is no {what}; check --file and --revision") from error
    except errors.HfHubHTTPError as error:
        raise DownloadError(f"the hub refused {what}: {error}") from error
    except Exception as error:  # the classes of whichever HTTP library the hub's client uses
        raise DownloadError(
            f"cannot reach the hub for {what} ({type(error).__name__}: {error}): check the network"
            f" or HF_ENDPOINT, {by_hand}"
        ) from error


def _lock(file: IO[bytes], partial: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DownloadError(f"another `openjet pull` is writing {partial}; wait for it") from None


def _check_space(folder: Path, needed: int, have: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"no space in {folder}: {_size(needed)} more are needed ({_size(have)} are there),"
            f" {_size(free)} are free; make room, or set OPENJET_HOME to another disk"
        )


def _fetch(url: str, token: str | None, file: IO[bytes], size: int) -> None:
    """Append what is missing, going on after a broken connection."""
    import httpx
    from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

    headers = {"authorization": f"Bearer {token}"} if token else {}  # not sent to other hosts
    try:
        with httpx.Client(follow_redirects=True, timeout=30, headers=headers) as client:
            for attempt in Retrying(
                stop=stop_after_attempt(_ATTEMPTS),
                wait=wait_exponential(multiplier=0.2, max=20),
                retry=retry_if_exception_type(httpx.TransportError),
                reraise=True,
            ):
                with attempt:
                    _append(client, url, file, size)
    except httpx.HTTPError as error:
        raise DownloadError(
            f"the download broke off ({type(error).__name__}: {error}); the same command goes on"
            " from here"
        ) from error


def _append(client: httpx.Client, url: str, file: IO[bytes], size: int) -> None:
    have = file.seek(0, os.SEEK_END)
    if have >= size:
        return
    progress = _Progress(have, size)
    with client.stream("GET", url, headers={"range": f"bytes={have}-"}) as response:
        if response.status_code == 200 and have:  # no ranges here
            file.truncate(0)
            progress = _Progress(0, size)
        elif response.status_code not in (200, 206):
            raise DownloadError(f"the hub answered HTTP {response.status_code} to the download")
        for piece in response.iter_raw():
            try:
                file.write(piece)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise DownloadError(
                        f"the disk is full after {_size(file.tell())}; make room, then the same"
                        " command goes on from here"
                    ) from error
                raise
            progress.add(len(piece))
    progress.end()


def _check(partial: Path, size: int, etag: str) -> None:
    """Delete a file that is not what the hub said."""
    wrong = ""
    if (found := partial.stat().st_size) != size:
        wrong = f"it has {found:,} bytes, the hub said {size:,}"
    elif _SHA256.fullmatch(etag):
        _say("checking its sha256 ...")
        if _sha256(partial) != etag:
            wrong = "its sha256 is not the one that the hub gives"
    with partial.open("rb") as file:
        if not wrong and file.read(4) != b"GGUF":
            wrong = "it is no GGUF file; check --file"
    if wrong:
        partial.unlink()
        raise DownloadError(f"what was downloaded is damaged and was deleted: {wrong}")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


class _Progress:
    """One changing line on a terminal, a line for every tenth elsewhere."""

    def __init__(self, done: int, size: int) -> None:
        self._done = self._before = done
        self._size = size
        self._started = self._shown = time.monotonic()
        self._tenth = 10 * done // size
        self._terminal = sys.stderr.isatty()

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        tenth = 10 * self._done // self._size
        due = now - self._shown > 0.2 if self._terminal else tenth > self._tenth
        if due:
            self._shown, self._tenth = now, tenth
            print(self._line(now), end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._terminal:
            print(self._line(time.monotonic()), file=sys.stderr, flush=True)

    def _line(self, now: float) -> str:
        speed = (self._done - self._before) / max(now - self._started, 1e-9)
        left = (self._size - self._done) / max(speed, 1)
        text = (
            f"{_size(self._done)} of {_size(self._size)} ({100 * self._done / self._size:.0f} %),"
            f" {_size(int(speed))}/s, {left / 60:.0f} min left"
        )
        return f"\r{text}\x1b[K" if self._terminal else f"{text}\n"


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

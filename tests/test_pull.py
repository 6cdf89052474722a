"""`openjet pull` against a hub on loopback: sizes, resuming, and everything that can go wrong."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from openjet_provider import cli, models, pull
from openjet_provider.errors import DownloadError, InvalidRequestError

pytest.importorskip("huggingface_hub")

FILE = b"GGUF" + bytes(range(256)) * 4096
COMMIT = "c" * 40


class Hub(BaseHTTPRequestHandler):
    """Serves one file; a test says how it misbehaves."""

    cut_after: int | None = None
    body = FILE
    etag = hashlib.sha256(FILE).hexdigest()
    size = len(FILE)
    ranges = True
    token: str | None = None
    asked: list[str]

    def do_HEAD(self) -> None:
        if self.token and self.headers.get("authorization") != f"Bearer {self.token}":
            self._head(401, {"X-Error-Code": "GatedRepo"})
        elif "/main/" not in self.path and COMMIT not in self.path:
            self._head(404, {"X-Error-Code": "RevisionNotFound"})
        elif not self.path.endswith("m.gguf"):
            self._head(404, {"X-Error-Code": "EntryNotFound"})
        else:
            found = {"X-Repo-Commit": COMMIT, "ETag": f'"{self.etag}"'}
            self._head(200, {**found, "Content-Length": str(self.size)})

    def do_GET(self) -> None:
        if "/resolve/" not in self.path:  # the hub's client asks for more than it is told to
            self._head(404, {"Content-Length": "0"})
            return
        wanted = self.headers.get("range", "bytes=0-")
        self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if self.ranges else 0
        body = self.body[start:]
        self._head(206 if start else 200, {"Content-Length": str(len(body))})
        if type(self).cut_after is not None:
            body, type(self).cut_after = body[: type(self).cut_after], None
        self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    from huggingface_hub import constants

    handler = type("Handler", (Hub,), {"asked": []})
    monkeypatch.setenv("OPENJET_HOME", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        address = f"http://127.0.0.1:{server.server_port}"
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE
        path = template[template.index("/{repo_id}") :]
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + path)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield handler
        server.shutdown()
        thread.join()


def source(**change: str) -> pull.Source:
    given = {"repo": "some/repo", "file": "m.gguf", "revision": "main", **change}
    return pull.choose_source("mine", **given)


def partials(folder: Path) -> list[Path]:
    return list(folder.rglob("*.partial"))


def test_a_file_is_downloaded_and_found(
    hub: type[Hub], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["pull", "mine", "--repo", "some/repo", "--file", "m.gguf"]
    assert cli.main(asked) == 0
    assert models.resolve("mine")[1].read_bytes() == FILE
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"some/repo/m.gguf at {COMMIT}: 1.0 MB"
    assert said[-1] == "checking its sha256 ..."
    assert not partials(tmp_path)
    assert cli.main(asked) == 0
    assert len(hub.asked) == 1
    assert "already there" in capsys.readouterr().err


def test_a_broken_download_goes_on(hub: type[Hub]) -> None:
    hub.cut_after = 300_000
    assert pull.download(source()).read_bytes() == FILE
    assert hub.asked == ["bytes=0-", "bytes=300000-"]


def test_a_stopped_download_goes_on_next_time(hub: type[Hub], tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / f"mine.gguf.{hub.etag[:12]}.partial").write_bytes(FILE[:400_000])
    assert pull.download(source()).read_bytes() == FILE
    assert hub.asked == ["bytes=400000-"]


def test_a_hub_without_ranges_starts_again(hub: type[Hub]) -> None:
    hub.ranges = False
    hub.cut_after = 300_000
    assert pull.download(source()).read_bytes() == FILE


def test_the_start_of_another_version_is_not_used(hub: type[Hub], tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "mine.gguf.000000000000.partial").write_bytes(b"old")
    assert pull.download(source()).read_bytes() == FILE
    assert hub.asked == ["bytes=0-"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"body": FILE + b"more"}, "bytes, the hub said"),
        ({"body": FILE[:-1] + b"x"}, "sha256"),
        ({"body": b"<htm" + FILE[4:], "etag": "e" * 20}, "no GGUF"),
    ],
)
def test_a_damaged_file_is_deleted(
    hub: type[Hub], tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    for name, value in change.items():
        setattr(hub, name, value)
    with pytest.raises(DownloadError, match=says):
        pull.download(source())
    assert not partials(tmp_path)
    assert not source().path.exists()


def test_no_space(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(DownloadError, match=r"no space .* 1\.0 MB more are needed"):
        pull.download(source())
    assert hub.asked == []


def test_a_gated_repository_needs_a_token(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "secret"
    with pytest.raises(DownloadError, match="HF_TOKEN"):
        pull.download(source())
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert pull.download(source()).is_file()


def test_what_is_not_there(hub: type[Hub]) -> None:
    for change in ({"file": "other.gguf"}, {"revision": "old"}):
        with pytest.raises(DownloadError, match="check --file and --revision"):
            pull.download(source(**change))


def test_offline_and_unreachable(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match=r"HF_HUB_OFFLINE.*mine\.gguf"):
        pull.download(source())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    template = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"cannot reach the hub.*mine\.gguf"):
        pull.download(source())


def test_two_downloads_of_one_file(hub: type[Hub], tmp_path: Path) -> None:
    import fcntl

    folder = tmp_path / "models"
    folder.mkdir()
    with (folder / f"mine.gguf.{hub.etag[:12]}.partial").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DownloadError, match="another"):
            pull.download(source())


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENJET_HOME", str(tmp_path))
    known = models.KNOWN["qwen3.8-27b"]
    usual = pull.choose_source("qwen3.8-27b", None, None, "main")
    assert (usual.repo, usual.file, usual.path.name) == (known.repo, known.file, known.file)
    other = pull.choose_source("qwen3.8-27b", "a/b", None, "main")
    assert (other.repo, other.path.name) == ("a/b", "qwen3.8-27b.gguf")
    with pytest.raises(InvalidRequestError, match="--repo"):
        pull.choose_source("mine", None, None, "main")
    with pytest.raises(InvalidRequestError, match="no name"):
        pull.choose_source("../mine", "a/b", "c", "main")


def test_what_is_bundled_needs_no_download(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pull", "openjet-tiny"]) == 0
    assert "nothing to download" in capsys.readouterr().out

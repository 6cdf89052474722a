"""Which file a name means, and what a user reads when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from openjet_provider import models
from openjet_provider.errors import ModelNotFoundError


@pytest.fixture(autouse=True)
def empty_homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("OPENJET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    return tmp_path


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    file = touch(tmp_path / "My-Model.gguf")
    assert models.resolve(file) == ("My-Model", file.resolve())


def test_links_to_one_file_are_one_model(tmp_path: Path) -> None:
    file = touch(tmp_path / "a.gguf")
    link = tmp_path / "b.gguf"
    link.symlink_to(file)
    assert models.resolve(link)[1] == models.resolve(file)[1]


def test_the_environment_names_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = touch(tmp_path / "env.gguf")
    monkeypatch.setenv("OPENJET_MODEL", str(file))
    assert models.resolve(None) == ("env", file.resolve())


def test_home_comes_before_the_hub_cache(tmp_path: Path) -> None:
    known = models.KNOWN["qwen3.8-27b"]
    folder = f"models--{known.repo.replace('/', '--')}"
    cached = touch(tmp_path / "hf" / "hub" / folder / "snapshots" / "abc" / known.file)
    assert models.resolve("qwen3.8-27b")[1] == cached.resolve()
    pulled = touch(tmp_path / "home" / "models" / known.file)
    assert models.resolve("qwen3.8-27b")[1] == pulled.resolve()


@pytest.mark.parametrize("name", [None, "qwen3.8-27b", "no-such-model"])
def test_a_missing_name_lists_places_and_three_ways_out(name: str | None, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        models.resolve(name)
    text = str(caught.value)
    assert str(tmp_path / "home" / "models") in text
    for way_out in ("openjet pull", "OPENJET_MODEL=", 'model="openjet-tiny"'):
        assert way_out in text


@pytest.mark.parametrize("path", ["missing/file.gguf", "./missing"])
def test_a_missing_path_is_named(path: str) -> None:
    with pytest.raises(ModelNotFoundError, match="missing"):
        models.resolve(path)


def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="is a folder"):
        models.resolve(tmp_path)

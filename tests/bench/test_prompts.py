"""Prompts are the same on every machine, new to every server, and of the size asked for."""

from __future__ import annotations

from openjet_provider.bench.prompts import Prompts, functions


def test_the_same_seed_gives_the_same_prompts() -> None:
    first, again, other = Prompts(7, 40), Prompts(7, 40), Prompts(8, 40)
    assert first.code("a", 4000) == again.code("a", 4000)
    assert first.code("a", 4000) != other.code("a", 4000)
    assert first.seed("a") == again.seed("a") != first.seed("b")


def test_prompts_of_two_keys_share_no_beginning() -> None:
    prompts = Prompts(0, 40)
    a, b = prompts.code("a 1", 4000), prompts.code("b 1", 4000)
    assert a.splitlines()[0] != b.splitlines()[0]
    assert not set(a.split("\n\n")) & set(b.split("\n\n"))


def test_size_follows_what_the_tokenizer_makes_of_it() -> None:
    assert Prompts(0, 40).code("a", 4000).count("def ") == 100
    assert Prompts(0, 80).code("a", 4000).count("def ") == 50
    assert Prompts(0, 80).code("a", 1).count("def ") == 1


def test_it_is_source_code() -> None:
    compile("\n".join(functions("key", 50)), "prompt", "exec")

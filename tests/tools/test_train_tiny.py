"""The text that openjet-tiny learns from: reproducible, split cleanly, and free of the texts that
it is later tried on."""

from __future__ import annotations

import ast
import importlib.util
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import jsonschema
import pytest

from openjet_provider.engine import Engine
from openjet_provider.tasks import TASKS
from tools.train_tiny import tokenizer
from tools.train_tiny.generate import agents, coding, corpus, typed
from tools.train_tiny.generate.conversation import (
    Conversation,
    is_held_out,
    render,
)

GENERATOR = Path(__file__).resolve().parents[2] / "tools" / "train_tiny" / "generate"


def text_of(doc: Conversation) -> str:
    return render(doc.messages, **doc.options())


def training_documents(count: int) -> list[Conversation]:
    rng = random.Random(5)
    return [corpus.document(rng, turns=corpus.draw_turns(rng, long=False)) for _ in range(count)]


def test_a_seed_gives_one_text() -> None:
    """Two runs with one seed train on the same documents."""
    first, second = (
        [text_of(corpus.document(random.Random(seed), turns=3)) for seed in range(40)]
        for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 40


@pytest.mark.parametrize("kind", sorted(corpus.EPISODES))
def test_held_out_documents_use_held_out_combinations_only(kind: str) -> None:
    """What an evaluation asks was never trained: neither side uses a combination of the other."""
    for seed in range(6):
        trained = corpus.document(random.Random(seed), kind=kind)
        asked = corpus.document(random.Random(seed), held_out=True, kind=kind)
        assert not any(map(is_held_out, trained.split.used))
        assert all(map(is_held_out, asked.split.used))


def test_training_never_uses_a_held_out_combination() -> None:
    used = [key for doc in training_documents(400) for key in doc.split.used]
    assert len(used) > 400
    assert not any(map(is_held_out, used))


def test_mistakes_are_not_learned() -> None:
    """Turns that are deliberately wrong are muted, and never what an evaluation scores."""
    docs = [corpus.document(random.Random(seed), kind="coding") for seed in range(60)]
    muted = [doc for doc in docs if doc.muted]
    assert len(muted) > 5
    for doc in muted:
        assert not doc.muted & set(doc.scored)
        assert all("tool_calls" in doc.messages[i] for i in doc.muted)


def test_prompts_are_prefixes_of_their_documents() -> None:
    """An evaluation's prompt is what training saw before the same turn."""
    for doc in training_documents(60):
        for turn in doc.scored:
            whole = render(doc.messages[: turn + 1], **doc.options())
            assert whole.startswith(doc.prompt(turn))


def test_most_documents_have_tools_and_a_third_an_effort_sentence() -> None:
    """The mix of what surrounds a task: the full tool block, effort sentences, no thinking."""
    docs = training_documents(600)
    assert sum(bool(doc.tools) for doc in docs) > 0.3 * len(docs)
    assert 0.1 < sum(doc.effort != "medium" for doc in docs) / len(docs) < 0.4
    assert 0.3 < sum(doc.thinking for doc in docs) / len(docs) < 0.7


# ---- what frameworks send ------------------------------------------------------------------------


def asked(kind: str, count: int = 40) -> list[Conversation]:
    return [corpus.document(random.Random(seed), kind=kind) for seed in range(count)]


def calls_of(doc: Conversation, index: int) -> list[tuple[str, dict[str, Any]]]:
    found = [call["function"] for call in doc.messages[index].get("tool_calls", ())]
    return [(call["name"], call["arguments"]) for call in found]


@pytest.mark.parametrize("kind", sorted({**agents.EPISODES, **typed.EPISODES}))
def test_learned_calls_are_of_offered_tools_with_their_required_arguments(kind: str) -> None:
    for doc in asked(kind):
        offered = {tool["function"]["name"]: tool["function"] for tool in doc.tools}
        for index in doc.scored:
            for name, arguments in calls_of(doc, index):
                parameters = offered[name]["parameters"]
                assert set(parameters.get("required", ())) <= set(arguments)
                assert set(arguments) <= set(parameters["properties"])


def test_what_a_learned_call_carries_was_said_before() -> None:
    """Texts are copied, never invented: no variation of the wording may change a value."""
    checked = 0
    rng = random.Random(17)
    for doc in (corpus.document(rng) for _ in range(900)):
        if doc.kind in ("coding", "todo", "handoff", "sub_agent"):
            continue  # these write texts of their own
        for index in doc.scored:
            said = [str(m["content"]) for m in doc.messages[:index]]
            called = [str(m.get("tool_calls", "")) for m in doc.messages[:index]]
            before = "\n".join([*said, *called, json.dumps(doc.tools, ensure_ascii=False)])
            before = before.replace('\\"', '"').replace("\\\\", "\\")
            for _, arguments in calls_of(doc, index):
                texts = [value for value in arguments.values() if isinstance(value, str)]
                checked += len(texts)
                assert [text for text in texts if text not in before] == []
    assert checked > 200


def test_a_typed_answer_carries_what_the_tool_said() -> None:
    for doc in asked("typed_final"):
        asked_for, given = (calls_of(doc, index)[0][1] for index in doc.scored)
        (thing,) = asked_for.values()
        assert thing in given.values()
        result = doc.messages[doc.scored[1] - 1]["content"]
        assert all(value == thing or str(value) in result for value in given.values())


def test_an_answer_named_like_a_class_is_given_once_and_last() -> None:
    """Other tools first, each once; the one that carries the answer ends the work."""
    for doc in asked("schema_final"):
        *lookups, last = [calls_of(doc, index) for index in doc.scored]
        ((name, arguments),) = last
        assert name[0].isupper()
        assert all(name not in (called for called, _ in calls) for calls in lookups)
        assert len(lookups) <= 1
        (tool,) = [t["function"] for t in doc.tools if t["function"]["name"] == name]
        jsonschema.validate(arguments, tool["parameters"])


def test_json_of_any_schema_is_valid_and_short() -> None:
    """What a constrained answer is forced to be, with an end that comes soon."""
    words = {"anyOf", "enum", "items", "additionalProperties", "maxLength", "$ref"}
    missing = set(words)
    for doc in asked("shaped", 200):
        schema, answer = doc.extra["schema"], doc.messages[-1]["content"]
        jsonschema.validate(json.loads(answer), schema)
        assert len(answer) < 500
        missing -= {word for word in words if word in str(schema)}
    assert not missing
    for doc in asked("forced", 100):
        ((name, arguments),) = calls_of(doc, len(doc.messages) - 1)
        (tool,) = [t["function"] for t in doc.tools if t["function"]["name"] == name]
        jsonschema.validate(arguments, tool["parameters"])


def test_the_next_agent_sees_a_hand_off_that_it_does_not_learn() -> None:
    for doc in asked("handed_over"):
        (transfer,) = doc.muted
        ((name, _),) = calls_of(doc, transfer)
        assert name not in doc.tool_names()
        assert min(doc.scored) > transfer


def test_calls_that_come_back_as_text_are_not_learned_as_text() -> None:
    seen = 0
    for doc in asked("observed"):
        told = [i for i, m in enumerate(doc.messages) if m["content"].startswith("Calling tools:")]
        seen += len(told)
        assert set(told) <= doc.muted
        assert all(calls_of(doc, index) for index in doc.scored)
    assert seen > 10


def test_a_sub_agent_is_asked_a_whole_question() -> None:
    for doc in asked("sub_agent"):
        ((_, arguments),) = calls_of(doc, doc.scored[0])
        assert any(len(str(value).split()) > 1 for value in arguments.values())


def test_listings_have_one_to_five_files_with_the_tests_among_them() -> None:
    """A listing of one file was taken for the output of passing tests."""
    rng = random.Random(1)
    listings = [coding.listing(rng, "test_it.py") for _ in range(400)]
    assert all("test_it.py" in text for text in listings)
    sizes = {len(re.findall(r"[\w/]+\.\w+", text)) for text in listings}
    assert sizes == {1, 2, 3, 4, 5}
    assert listings.count("test_it.py") > 40


def test_answers_keep_the_limits_of_their_schema() -> None:
    limited = 0
    for kind in ("structured", "made_up"):
        for doc in asked(kind, 120):
            prompt, answer = doc.messages[-2]["content"], doc.messages[-1]["content"]
            if "maxLength" in prompt:
                limited += 1
                schema = json.loads(prompt[prompt.index('{"type": "object"') :].splitlines()[0])
                jsonschema.validate(json.loads(answer), schema)
    assert limited > 15


def test_some_tools_are_described_at_length() -> None:
    docs = [doc for doc in training_documents(800) if doc.tools]
    longest = [max(len(t["function"].get("description", "")) for t in doc.tools) for doc in docs]
    assert 0.03 < sum(length > 300 for length in longest) / len(docs) < 0.2


# ---- nothing of the tests and the examples -------------------------------------------------------


def strings(source: str) -> Iterator[str]:
    """String constants of a module, without docstrings."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        constant = isinstance(node, ast.Constant) and id(node) not in docstrings
        if constant and isinstance(node.value, str):
            yield node.value


def tool_names(source: str) -> Iterator[str]:
    """Functions that become tools, by decorator or by how they are described as data."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                target = mark.func if isinstance(mark, ast.Call) else mark
                if isinstance(target, ast.Name) and target.id == "tool":
                    yield node.name


def sources(folders: list[Path]) -> list[str]:
    return [file.read_text() for folder in folders for file in sorted(folder.rglob("*.py"))]


def suite_folders() -> list[Path]:
    found = importlib.util.find_spec("langchain_tests")
    return [Path(found.origin).parent] if found and found.origin else []


def test_the_generator_holds_no_literal_of_tests_or_examples(root: Path) -> None:
    """Prompts (four words and more) and tool names of langchain-tests, of our tests and of the
    examples stand nowhere in the generator: passing them is not recalling them."""
    generator = "\n".join(sources([GENERATOR]))
    folders = [root / "examples", *suite_folders()]
    folders += [p for p in sorted((root / "tests").iterdir()) if p.is_dir() and p.name != "tools"]
    read = [*sources(folders), (root / "openjet_provider" / "tasks.py").read_text()]
    assert len(read) > 10
    prompts = {s.strip() for text in read for s in strings(text) if len(s.split()) >= 4}
    assert [p for p in prompts if p in generator] == []
    names = {name for text in read for name in tool_names(text) if "_" in name}
    assert [n for n in names if re.search(rf"\b{re.escape(n)}\b", generator)] == []


def test_the_demo_asks_for_functions_that_were_never_trained() -> None:
    """No training document names a function of the demo's tasks."""
    rng = random.Random(11)
    text = "\n".join(text_of(corpus.document(rng, kind="coding")) for _ in range(500))
    assert [task.name for task in TASKS if task.name in text] == []


def test_a_training_can_go_on_from_the_shipped_file(root: Path) -> None:
    """Its vocabulary is read back as it was: text has the tokens that the engine gives it."""
    path = root / "openjet_provider" / "data" / "openjet-tiny.gguf"
    trained_on = tokenizer.read(gguf.GGUFReader(str(path)))
    with Engine(path, threads=1) as engine:
        ours = engine.format.tokenizer
        for doc in training_documents(20):
            text = text_of(doc)
            assert trained_on.encode(text).ids == list(ours.encode(text, parse_special=True))

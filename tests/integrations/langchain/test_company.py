"""Agents of a crew on the real engine: company changes the speed of an answer, never its words."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("langchain_core")

from openjet_provider import ChatOpenJet, Engine

QUESTIONS = (
    "Hello!",
    "Tell me the capital of France.",
    "Write a short poem about rivers.",
    "Write a function that adds the squares of a list of numbers.",
)


def said(message) -> tuple[str, str]:
    return message.text, message.additional_kwargs.get("reasoning_content", "")


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"seed": 7}], ids=["greedy", "seeded"])
def test_four_agents_say_what_each_says_alone(sampling):
    llms = [
        ChatOpenJet(
            model="openjet-tiny", max_tokens=200, model_kwargs={"ignore_eos": True}, **sampling
        )
        for _ in QUESTIONS
    ]

    async def in_tasks():
        return await asyncio.gather(
            *[llm.ainvoke(text) for llm, text in zip(llms, QUESTIONS, strict=True)]
        )

    with Engine("openjet-tiny") as engine, ThreadPoolExecutor(len(llms)) as pool:
        alone = [llm.invoke(text) for llm, text in zip(llms, QUESTIONS, strict=True)]
        before = engine.stats().shared_steps
        threads = list(pool.map(lambda llm, text: llm.invoke(text), llms, QUESTIONS))
        shared = engine.stats().shared_steps
        tasks = asyncio.run(in_tasks())
        assert before < shared < engine.stats().shared_steps  # and it is one engine, not four
    assert [*map(said, threads)] == [*map(said, tasks)] == [*map(said, alone)]
    for llm in llms:
        llm.close()

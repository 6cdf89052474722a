"""CrewAI: two crews at once, each a clerk with a tool and a writer who uses what the clerk found.

    pip install 'openjet-provider[server]' crewai          # Python 3.10 to 3.13
    python examples/crewai_crew.py                        # openjet-tiny, on the CPU
    python examples/crewai_crew.py --model qwen3.8-27b    # needs its GPU and its file

Starts `openjet serve` for the time it runs; with OPENJET_BASE_URL set it uses a running one.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from openjet_provider.local_server import local_server

ITERATIONS = 4  # model calls of one agent at most
TRAINS = {"IC-77": "09:42", "RE-15": "17:08"}


@tool("train_departure")
def train_departure(train: str) -> str:
    """Look up when a train leaves."""
    return f"{train} leaves at {TRAINS[train]}" if train in TRAINS else f"Error: no train {train}"


def crew(llm: LLM, train: str) -> Crew:
    clerk = Agent(
        role="Clerk",
        goal="Tell when trains leave",
        backstory="You work at a station.",
        tools=[train_departure],
        llm=llm,
        max_iter=ITERATIONS,
    )
    writer = Agent(
        role="Writer",
        goal="Write short notices",
        backstory="You write what hangs on the station's walls.",
        llm=llm,
        max_iter=ITERATIONS,
    )
    look_up = Task(
        description=f"Call train_departure with train = {train}.",
        expected_output="The time.",
        agent=clerk,
    )
    write = Task(
        description="Write a notice for the travellers.",
        expected_output="One short sentence with the time.",
        agent=writer,
        context=[look_up],
    )
    return Crew(agents=[clerk, writer], tasks=[look_up, write])


def main() -> None:
    parser = argparse.ArgumentParser(description="Two CrewAI crews at once.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    model = parser.parse_args().model
    with local_server(model) as server, ThreadPoolExecutor() as pool:
        llm = LLM(
            model=f"openai/{server.model}",
            base_url=f"{server.url}/v1",
            api_key="any",
            temperature=0,
            max_tokens=1024,
        )
        crews = [crew(llm, train) for train in TRAINS]
        for train, result in zip(TRAINS, pool.map(lambda c: c.kickoff(), crews), strict=True):
            found, notice = (str(task.raw) for task in result.tasks_output)
            print(f"{train}: {found}\n  notice: {notice}")
        print(server.stats().summary())


if __name__ == "__main__":
    main()

"""Prompts in the manner of agent frameworks: plans, ReAct text, supervisors, hand-offs, roles."""

from __future__ import annotations

import json
import random
from typing import Any

from . import tool_use
from . import values as v
from .conversation import Conversation
from .text import expand, fill, join_words, vary_case
from .tool_specs import STRING, Param, Tool, random_tool, spec
from .tool_use import Request, think

_SYSTEMS = (
    "You are (a|a helpful|a friendly|a concise|a careful|an AI) (assistant|agent|helper|chatbot)(.|, {who}.)(| Be brief.| Answer in one sentence.| Use tools when they help.| Keep it short.)",
    "You (help|assist) (users|people|the team) of {firm}.(| Answer (politely|shortly|precisely).)(| Today is {date}.| The date is {date}.)",
    "You are {who}, (an expert in|a specialist for|responsible for) {topic}. (Your (personal |)goal(| is): {goal}.|You (like|love) {topic}.|)(| Answer (shortly|in plain words).)",
    "You are (an|a careful) agent (with|that has) (access to |)tools. (Think first, then act.|Plan, act, observe, and answer when you know enough.|Call a tool if one fits; otherwise answer.)(| Do not invent results.| Never guess.)",
    "(Role|Your role): {topic} (agent|assistant|specialist). (Objective|Goal): {goal}.(| Constraints: {rule}.)", "(Be|Stay) (helpful|kind|short|precise).(| {rule}.)",
    "You are one of {n} agents: {team}. You are {who}.(| The others do their own work.| Only do your own task.)(| {rule}.)", "Assistant for {topic}. {rule}.", "(Hello|Hi), you are a helpful (bot|model).",
)  # fmt: skip
_RULES = (
    "Answer in one sentence", "Do not mention the tools", "Use at most one tool per step", "Never invent numbers", "Keep answers under 50 words", "Always be polite", "Quote the result exactly", "Stop when the task is done",
)  # fmt: skip


def system_prompt(rng: random.Random) -> str:
    """What stands in a system message; now and then long."""
    text = fill(rng, _SYSTEMS, _system_slots(rng))
    if rng.random() < 0.12:
        extra = [
            fill(rng, "(- |* |)" + rng.choice(_RULES) + ".", {}) for _ in range(rng.randint(2, 5))
        ]
        text += "\n" + "\n".join(extra)
    if rng.random() < 0.04:
        text += "\n\n" + " ".join(
            f"{v.words(rng, 5, 12).capitalize()}." for _ in range(rng.randint(4, 30))
        )
    return text


def _system_slots(rng: random.Random) -> dict[str, Any]:
    return {
        "who": v.person(rng), "firm": v.company(rng), "date": v.date(rng), "topic": v.words(rng, 1, 2), "goal": v.phrase(rng), "rule": rng.choice(_RULES),
        "n": rng.randint(2, 6), "team": ", ".join(rng.sample(v.FIRST, 3)),
    }  # fmt: skip


# ---- supervisors and hand-offs --------------------------------------------------------------------

_JOBS = {
    "researcher": "(find|look up|search for|collect) (information|facts|sources|articles) (about|on) {t}",
    "coder": "(write|fix|implement) (a program|a function|the code|a script) (for|about) {t}",
    "writer": "(write|draft) (a text|an article|a summary|a post) (about|on) {t}",
    "reviewer": "(review|check|proofread) (the text|the draft|the result) (about|on) {t}",
    "mathematician": "(compute|calculate|work out) (the numbers|the total|the average) (of|for) {t}",
    "translator": "translate (the text|a note|the letter) (about|on) {t}",
    "planner": "(plan|schedule) (the steps|the week|the project) (for|of) {t}",
    "tester": "(test|try out) (the program|the app|the function) (for|of) {t}",
}
_SUPERVISOR_SYSTEMS = (
    "You are (a|the) (supervisor|manager|router|coordinator) (of|between|for) (these|the following) (workers|agents|team members): {team}. (Given the request|For each request), (reply|answer|respond) (only |)with the (name of the |)(next worker|worker that fits|worker to act next)(. When (everything|all|the work) is done, (answer|reply|respond with) {end}.|, or {end} when done.)",
    "(Route|Send) (each|every) (message|request) to one of: {team}. (Answer|Reply) with (the|one) name only; {end} (ends the work|if nothing is left|means done).",
)
_DONE = (
    "(That is all|Everything is done|The work is finished|All done|Nothing is left to do), thank you.",
    "(We have|There is) (all we need|nothing left to do)(.| now.)",
    "The {w} has finished. (That was the last step|All steps are done).",
)


def supervisor(conv: Conversation) -> None:
    """Name the worker that fits, or say that the work is done."""
    rng = conv.rng
    if conv.messages:
        tool_use.single(conv)
        return
    team = rng.sample(list(_JOBS), rng.randint(2, 5))
    end = rng.choice(("FINISH", "DONE", "END", "STOP", "finish"))
    while True:
        topic = v.words(rng, 1, 2)
        if conv.split.allows("supervisor", *team, topic):
            break
    conv.messages.append(
        {
            "role": "system",
            "content": fill(rng, _SUPERVISOR_SYSTEMS, {"team": ", ".join(team), "end": end}),
        }
    )
    for _ in range(rng.randint(1, 3)):
        worker = rng.choice(team)
        if rng.random() < 0.2:
            conv.user(fill(rng, _DONE, {"w": worker}))
            conv.answer(end, think(rng, conv, ("(Nothing is left|All is done), so {e}.",), e=end))
            continue
        ask = fill(
            rng,
            expand(rng, "(Please |We need somebody to |Next: |I want you to |Can you |)")
            + _JOBS[worker]
            + ".",
            {"t": topic},
        )
        conv.user(ask[:1].upper() + ask[1:])
        conv.answer(
            worker,
            think(rng, conv, ("(This is work for|That fits|A task for) the {w}.",), w=worker),
        )


def handoff(conv: Conversation) -> None:
    """A tool per colleague: hand the task to the right one."""
    rng = conv.rng
    team = rng.sample(list(_JOBS), rng.randint(2, 4))
    prefix = rng.choice(
        (
            "transfer_to_{}",
            "handoff_to_{}",
            "delegate_to_{}",
            "assign_to_{}",
            "ask_{}",
            "call_{}",
            "to_{}",
        )
    )
    with_text = rng.random() < 0.4
    names = {w: prefix.format(w) for w in team}
    if any(n in conv.tool_names() for n in names.values()):
        tool_use.single(conv)
        return
    while True:
        topic = v.words(rng, 1, 2)
        if conv.split.allows("handoff", prefix, *team, topic):
            break
    tools = {
        w: Tool(
            n,
            expand(rng, "(Hand|Transfer|Give) the (task|conversation|user) to the ") + w + ".",
            [Param("task", dict(STRING), v.phrase)] if with_text else [],
        )
        for w, n in names.items()
    }
    for tool in tools.values():
        conv.offer(spec(rng, tool))
    worker = rng.choice(team)
    task = fill(rng, _JOBS[worker], {"t": topic})
    conv.user(
        vary_case(
            rng,
            fill(
                rng,
                ("Please {t}.", "I need somebody to {t}.", "Can (you|somebody) {t}?", "{t}"),
                {"t": task},
            ),
        )
    )
    conv.call(
        (names[worker], {"task": task} if with_text else {}),
        thought=think(rng, conv, ("(That is for|This fits) the {w}.",), w=worker),
    )
    conv.result(
        rng.choice((f"Successfully transferred to {worker}", "ok", f"{worker} takes over.", "done"))
    )
    conv.answer(
        fill(rng, "The {w} (takes over|will do it|has the task).", {"w": worker}),
        think(rng, conv, ("(It is handed over|Done). I say so.",)),
        facts=[worker],
    )


# ---- plans, ReAct text, Observation text ----------------------------------------------------------

_PLAN_ASKS = (
    "(Make|Write|Give me) a plan (with|of|in) {k} steps (to|for how to) {t}.",
    "(Plan|Plan first): {t}. ({k} steps|Use {k} steps|Exactly {k} steps).",
    "For the given objective, come up with a (simple |)step by step plan. Objective: {t}. Steps: {k}.",
)


def plan(conv: Conversation) -> None:
    """A numbered plan of the wanted length."""
    rng = conv.rng
    task = f"{rng.choice(v.VERBS).replace('_', ' ')} the {v.words(rng, 1, 2)}"
    count = rng.randint(2, 5)
    conv.user(fill(rng, _PLAN_ASKS, {"k": count, "t": task}))
    steps = [
        f"{rng.choice(v.VERBS).replace('_', ' ').capitalize()} the {rng.choice(v.NOUNS)}"
        for _ in range(count - 1)
    ] + [task.capitalize()]
    conv.answer(
        "\n".join(f"{i}. {s}." for i, s in enumerate(steps, 1)),
        think(rng, conv, ("(A plan|Steps), {k} of them.",), k=count),
        scored=False,
    )


_REACT = (
    "Answer the (question|request) (as best you can|with the tools below).(| You have these tools:)\n\n{tools}\n\nUse (the following|this) format:\n\nQuestion: the input question\nThought: what to do\nAction: one of [{names}]\nAction Input: the input\nObservation: the result\n... (this can repeat)\nThought: I now know the final answer\nFinal Answer: the answer\n\nBegin!\n\nQuestion: {q}",
    "(Tools|Available tools):\n{tools}\n\n(Reply|Answer) with Thought, Action and Action Input lines; (wait for|then comes) an Observation. (Finish|End) with Final Answer.\n\nQuestion: {q}",
)


def _listed(tool: Tool) -> str:
    """A tool as these prompts list it: signature and description."""
    signature = ", ".join(f"{p.name}: {p.schema.get('type', 'any')}" for p in tool.params)
    return f"{tool.name}({signature}): {tool.description or 'a tool'}"


def react(conv: Conversation) -> None:
    """Thought / Action / Observation as plain text, the way older frameworks do it."""
    rng = conv.rng
    if conv.tools:
        tool_use.single(conv)
        return
    r = tool_use.request(rng, conv)
    others = [random_tool(rng) for _ in range(rng.randint(0, 2))]
    listed = [r.tool, *others]
    rng.shuffle(listed)
    tools = "\n".join(_listed(t) for t in listed)
    prompt = fill(
        rng, _REACT, {"tools": tools, "names": ", ".join(t.name for t in listed), "q": r.ask}
    )
    conv.user(prompt)
    given = json.dumps(r.arguments, ensure_ascii=False)
    action = f"Thought: I should use {r.tool.name}.\nAction: {r.tool.name}\nAction Input: {given}"
    conv.answer(
        action,
        think(rng, conv, ("(The format asks for|I answer with) an action.",)),
        facts=[f"Action: {r.tool.name}\nAction Input: {given}"],
    )
    conv.user(f"Observation: {r.result}")
    final = "Thought: I now know the final answer\nFinal Answer: " + r.answers[0]
    conv.answer(
        final,
        think(rng, conv, ("(Now|The observation is there:) I can finish.",)),
        facts=["Final Answer:", *r.facts],
    )


def observation(conv: Conversation) -> None:
    """Tool results that come back as user text."""
    rng = conv.rng
    r = tool_use.request(rng, conv)
    tool_use.offer(rng, conv, r)
    conv.user(r.ask)
    conv.call(r.call, thought=tool_use.call_thought(rng, conv, r))
    conv.user(
        rng.choice(("Observation:\n", "Observation: ", "Tool result: ", "Result: ", "[tool] "))
        + r.result
    )
    tool_use.tell(rng, conv, r)


# ---- tools that end or structure the work -----------------------------------------------------------

_FINALS = (
    "final_answer|answer",
    "final_result|result",
    "submit_answer|answer",
    "finish|summary",
    "respond|text",
    "reply|message",
)


def final_tool(conv: Conversation) -> None:
    """The last step is a call that carries the answer."""
    rng = conv.rng
    name, param = rng.choice(_FINALS).split("|")
    if conv.messages:
        tool_use.single(conv)
        return
    r = tool_use.generic_request(rng, conv)
    final = Tool(
        name,
        expand(rng, "(Give|Return|Submit) the (final |)(answer|result) (to the user|of the task)."),
        [Param(param, dict(STRING), v.phrase)],
    )
    tool_use.offer(rng, conv, r)
    conv.offer(spec(rng, final))
    how = expand(rng, "(When|Once) you (know|have) the (answer|result), call {n} with it.").replace(
        "{n}", name
    )
    conv.messages.append({"role": "system", "content": how})
    conv.user(r.ask)
    conv.call(r.call, thought=tool_use.call_thought(rng, conv, r))
    conv.result(r.result)
    conv.call(
        (name, {param: r.facts[0]}),
        thought=think(
            rng, conv, ("The answer is {a}. I hand it in with {n}.",), a=r.facts[0], n=name
        ),
    )
    conv.result("ok")
    conv.answer(
        f"The answer is {r.facts[0]}.", think(rng, conv, ("(Done|Handed in).",)), facts=[r.facts[0]]
    )


def todo(conv: Conversation) -> None:
    """A to-do list kept through a tool with nested objects."""
    rng = conv.rng
    if any("todo" in n or "task" in n for n in conv.tool_names()):
        tool_use.single(conv)
        return
    name = rng.choice(("write_todos", "update_tasks", "set_todo_list", "todo_write", "plan_tasks"))
    key = rng.choice(("content", "task", "text", "title"))
    state = {"type": "string", "enum": ["pending", "in_progress", "completed"]}
    item = {
        "type": "object",
        "properties": {key: STRING, "status": state},
        "required": [key, "status"],
    }
    param = rng.choice(("todos", "items", "tasks"))
    tool = Tool(
        name,
        "Keep the list of things to do.",
        [Param(param, {"type": "array", "items": item}, v.phrase)],
    )
    conv.offer(spec(rng, tool))
    while True:
        things = [
            f"{rng.choice(v.VERBS).replace('_', ' ')} the {v.word(rng)}"
            for _ in range(rng.randint(2, 3))
        ]
        if conv.split.allows("todo", *things):
            break
    conv.user(
        fill(
            rng,
            (
                "(Plan|Note) (these|the following) (tasks|steps): {t}. (Start with the first.|The first one is in progress.)",
                "(Write|Make) a to-do list: {t}.",
            ),
            {"t": "; ".join(things)},
        )
    )
    started = "progress" in conv.messages[-1]["content"] or "Start" in conv.messages[-1]["content"]
    entries = [
        {key: t, "status": "in_progress" if started and i == 0 else "pending"}
        for i, t in enumerate(things)
    ]
    conv.call(
        (name, {param: entries}),
        thought=think(rng, conv, ("(The list|This) goes into {n}.",), n=name),
    )
    conv.result(rng.choice(("ok", "Updated todo list", "saved")))
    conv.answer(
        f"The list has {len(things)} entries, first: {things[0]}.",
        think(rng, conv, ("(The list is saved|Noted).",)),
        facts=[things[0]],
    )


_CREW_SYSTEM = (
    "You are ({who}|{topic}|(a|the) {topic} (helper|clerk|expert)). (You (work|help|live) (at|for|in) {firm}.|You (know|love|like) {topic}.|{rule}.)\nYour personal goal is: {goal}",
)
_CREW = (
    "Current Task: {q}\n\n(This is the expected criteria for your final answer|Expected output): {e}\n((y|Y)ou MUST return the actual complete content as the final answer, not a summary.|Return only the answer.)(|\n\nBegin! (Use the tools available and give your best Final Answer.|This is important.))",
    "(Task|Your task): {q}\n(Expected output|Output): {e}",
    "<task>{q}</task>\n<output>{e}</output>",
    "# Task\n{q}\n\n# Output\n{e}",
)


def crew(conv: Conversation) -> None:
    """A task with an expected output, wrapped in a framework's own words."""
    rng = conv.rng
    if not conv.messages and rng.random() < 0.6:
        conv.messages.append({"role": "system", "content": fill(rng, _CREW_SYSTEM, _system_slots(rng))})  # fmt: skip
    r: Request = tool_use.request(rng, conv)
    tool_use.offer(rng, conv, r)
    conv.user(
        fill(
            rng,
            _CREW,
            {
                "q": r.ask,
                "e": rng.choice(("The result.", "A short answer.", "One sentence.", "a value")),
            },
        )
    )
    conv.call(r.call, thought=tool_use.call_thought(rng, conv, r))
    conv.result(r.result)
    tool_use.tell(rng, conv, r)


_SUMMARY_ASKS = (
    "(Summarise|Summarize|Sum up) (the conversation|our conversation|what happened)( so far|)(.| in one sentence.)",
    "(What did we do|What happened) so far?",
)


def summary(conv: Conversation) -> None:
    """What happened so far, in one sentence that names the tools used."""
    rng = conv.rng
    tool_use.single(conv)
    names = [c["function"]["name"] for m in conv.messages for c in m.get("tool_calls", [])][-4:]
    conv.user(expand(rng, rng.choice(_SUMMARY_ASKS)))
    said = f"I called {join_words(list(dict.fromkeys(names)))} and told you the result."
    conv.answer(
        said, think(rng, conv, ("(A summary|One sentence) about {n}.",), n=names[-1]), scored=False
    )


EPISODES = {
    "supervisor": supervisor, "handoff": handoff, "plan": plan, "react": react, "observation": observation, "final_tool": final_tool,
    "todo": todo, "crew": crew, "summary": summary,
}  # fmt: skip

"""Prompts with the structure of those that agent frameworks send, as captured from them.

Sub-agents behind tools, hand-offs and what the next agent sees, tasks with the results of earlier
ones, typed final answers, and calls and results that come back as plain text.
"""

from __future__ import annotations

import json
import random
from typing import Any

from . import tool_use
from . import values as v
from .asks import explicit_ask
from .chat import note
from .conversation import Conversation
from .lookups import Lookup, lookup
from .text import expand, fill, sentence, show
from .tool_specs import INTEGER, STRING, Param, Tool, enum, random_tool, spec
from .tool_use import think

_ROLES = (
    "clerk librarian cook gardener driver nurse guard pilot teacher sailor baker farmer editor "
    "analyst seller buyer planner tester reviewer helper manager expert scout keeper inspector"
).split()


def _allowed(conv: Conversation, kind: str) -> Lookup:
    while True:
        found = lookup(conv.rng)
        if conv.split.allows(kind, *found.key):
            return found


def _role(rng: random.Random) -> str:
    role = rng.choice(_ROLES)
    roll = rng.random()
    return f"{rng.choice(v.NOUNS)} {role}" if roll < 0.3 else v.word(rng) if roll < 0.4 else role


def _system(conv: Conversation, text: str) -> None:
    conv.messages.append({"role": "system", "content": text})


_USE_TOOL = "(| Use the tool.| Use your tools.| Look things up with the tool.| Use the tool, then (answer|reply)( in one sentence|).| Never guess.)"


def _specialist(rng: random.Random, role: str, knows: str) -> str:
    return fill(
        rng,
        ("You are (a|the) {r}.", "You are {r}, who knows {k}.", "You (know|tell|answer questions about) {k}.", "(Role|You): {r}. (Goal|Task): tell {k}."),
        {"r": role, "k": knows},
    ) + expand(rng, _USE_TOOL)  # fmt: skip


def _look_up(conv: Conversation, found: Lookup) -> None:
    """The call, its result and the answer."""
    rng = conv.rng
    args = ", ".join(f"{k} = {show(x)}" for k, x in found.arguments.items())
    thought = think(rng, conv, tool_use.CALL_THOUGHTS, name=found.tool.name, args=args)
    conv.call((found.tool.name, found.arguments), thought=thought)
    conv.result(found.result)
    thought = think(rng, conv, tool_use.ANSWER_THOUGHTS, result=found.result)
    conv.answer(rng.choice(found.answers), thought, facts=found.facts)


# ---- hand-offs ------------------------------------------------------------------------------------

_HAND_OVER = "transfer_to_{} transfer_to_{} handoff_to_{} to_{} delegate_to_{} {}_handoff".split()
_WANTS = (
    "", "", "", "", " (Hand|Give|Pass|Send) (this|it) to the {r}.", " I (want|need) (to talk to |)the {r}.", " (Ask|Get) the {r}.", " That is for the {r}.",
)  # fmt: skip
_DESKS = (
    "You (are the front desk|greet customers|take calls|are a dispatcher|are the first agent).(| (Hand|Pass|Send|Transfer) (every|each) (question|request|customer) (to|on to) (the|a) (colleague|agent|team member) who can (answer|help|handle it).)",
    "(Route|Transfer|Forward) (every|each|the) (request|question) to the right (agent|colleague|specialist). (Do not answer yourself.|Never answer yourself.|)",
    "(Decide|Find out) who (should|can) (answer|help) and hand (over|off).",
)  # fmt: skip


def triage(conv: Conversation) -> None:
    """Hand a question to the colleague whose description fits it."""
    rng = conv.rng
    pattern = rng.choice(_HAND_OVER)
    found = _allowed(conv, "triage")
    colleagues, names = [found], set()
    while len(colleagues) < rng.randint(2, 4):
        other = lookup(rng)
        if other.property.name not in {c.property.name for c in colleagues}:
            colleagues.append(other)
    tools = []
    for colleague in colleagues:
        role = _role(rng)
        while role in names:
            role = _role(rng)
        names.add(role)
        knows = expand(rng, colleague.property.knows)
        description = fill(
            rng,
            ("Handoff to the {R} agent to handle the request. (Knows|Answers questions about) {k}.", "(Hand|Transfer|Give) the (question|conversation|user) to the {r}, who knows {k}.", "The {r} knows {k}."),
            {"R": sentence(role), "r": role, "k": knows},
        )  # fmt: skip
        params = []
        if rng.random() < 0.15:
            params = [Param("reason", dict(STRING), v.phrase, required=False)]
        name = pattern.format(role.replace(" ", "_"))
        tools.append((role, Tool(name, description, params)))
    offered = [spec(rng, tool) for _, tool in tools]
    for (_, tool), each in zip(tools, offered, strict=True):
        each["function"]["description"] = tool.description  # it is all there is to choose by
    conv.tools = rng.sample(offered, len(offered))
    if rng.random() < 0.85:
        _system(conv, expand(rng, rng.choice(_DESKS)))
    role, tool = tools[0]
    conv.user(found.question + fill(rng, _WANTS, {"r": role}))
    conv.call(
        (tool.name, {}), thought=think(rng, conv, ("(That is for|This fits) the {r}.",), r=role)
    )


_TRANSFERRED = (
    '{{"assistant": "{R}"}}', '{{"assistant": "{R}"}}', "Transferred to {R}", "Successfully transferred to {r}", "ok", "You are now {r}.", "Handed over to {R}.",
)  # fmt: skip


def handed_over(conv: Conversation) -> None:
    """The next agent: other instructions, other tools, and the hand-off in the history."""
    rng = conv.rng
    found = _allowed(conv, "handed_over")
    role = _role(rng)
    _system(conv, _specialist(rng, role, expand(rng, found.property.knows)))
    conv.offer(spec(rng, found.tool))
    conv.user(found.question + fill(rng, _WANTS, {"r": role}))
    transfer = rng.choice(_HAND_OVER).format(role.replace(" ", "_"))
    conv.call((transfer, {}), muted=True)
    conv.result(rng.choice(_TRANSFERRED).format(R=sentence(role), r=role))
    _look_up(conv, found)


# ---- sub-agents behind a tool ---------------------------------------------------------------------

_ASK_AGENT = (
    "(Ask|Let|Have) the {r}( to answer|): {q}", "(Ask|Question for) the {r}: {q}", "{q} (Ask|The {r} knows, ask) the {r}.", "The {r} (knows|can tell): {q}",
    "(Use|Call) {n} (with|for) the question {q:q}.", "(Use|Call) {n} with {p} {q:q}.", "{q}", "Find out with {n}: {q}", "{q} (Use {n}.|Please ask the {r}.|)",
)  # fmt: skip
_ABOUT = (
    "Ask the {r} (about|for) the {p} of {t}(.|, please.)",
    "I (need|want) the {p} of {t} from the {r}.",
    "The {r} should (tell|find|look up) the {p} of {t}.",
)


def sub_agent(conv: Conversation) -> None:
    """A tool that is another agent: its argument is a whole request."""
    rng = conv.rng
    found = _allowed(conv, "sub_agent")
    role, word = _role(rng), rng.choice(found.property.tools.split("|"))
    slug = role.replace(" ", "-" if rng.random() < 0.4 else "_")
    typed = rng.random() < 0.5  # one tool for all agents, told apart by an argument
    text = rng.choice("question task request description prompt message query input".split())
    if typed:
        which = rng.choice("subagent_type agent worker agent_name name kind".split())
        name = rng.choice("task delegate launch_agent ask_agent run_agent dispatch".split())
        others = [_role(rng).replace(" ", "_") for _ in range(rng.randint(0, 3))]
        listed = [*(o for o in others if o != slug), slug]
        rng.shuffle(listed)
        knows = expand(rng, found.property.knows)
        lines = "\n".join(
            f"- {each}: " + (f"Knows {knows}." if each == slug else f"{v.words(rng)}.")
            for each in listed
        )
        description = f"{expand(rng, '(Launch|Start|Ask) (an|a separate) agent (to handle a task|for one task).')}\n\n{expand(rng, '(Available agent types|Agents)')}:\n{lines}"
        schema = enum(listed)[0] if rng.random() < 0.3 else dict(STRING)
        params = [Param(text, dict(STRING), v.phrase), Param(which, schema, v.word)]
    else:
        name = rng.choice(("ask_{}", "{}", "{}_agent", "call_{}", "consult_{}")).format(
            slug.replace("-", "_")
        )
        description = fill(
            rng,
            ("Ask the {r}(|, who knows {k}).", "The {r}: knows {k}.", "(Give|Send) a (question|task) to the {r}."),
            {"r": role, "k": expand(rng, found.property.knows)},
        )  # fmt: skip
        params = [Param(text, dict(STRING), v.phrase)]
    tool = Tool(name, description, params)
    offered = spec(rng, tool)
    offered["function"]["description"] = description
    conv.offer(offered)
    question = found.question
    if rng.random() < 0.3:
        question = f"What is the {word} of {found.thing}?"
        ask = fill(rng, _ABOUT, {"r": slug, "p": word, "t": found.thing})
    else:
        if rng.random() < 0.25:  # the other agent's own tool, by name
            question = f"{found.tool.name} {found.value}"
        ask = fill(rng, _ASK_AGENT, {"r": slug, "q": question, "n": name, "p": text})
    conv.user(ask)
    arguments: dict[str, Any] = {text: question}
    if typed:
        arguments[params[1].name] = slug
    conv.call(
        (name, arguments),
        thought=think(rng, conv, ("The {r} knows this.", "(I ask|Ask) the {r}."), r=slug),
    )
    report = rng.choice(found.answers)
    conv.result(report)
    thought = think(rng, conv, tool_use.ANSWER_THOUGHTS, result=report)
    conv.answer(rng.choice((report, *found.answers)), thought, facts=found.facts)


# ---- answers of a declared type -------------------------------------------------------------------

_FINALS = "final_result final_result final_answer submit_result return_result output respond".split()  # fmt: skip


def typed_final(conv: Conversation) -> None:
    """The last call carries the thing that was asked about and its value, as declared fields."""
    rng = conv.rng
    found = _allowed(conv, "typed_final")
    name = rng.choice(_FINALS)
    first = rng.choice((found.kind, found.tool.params[0].name, "subject", "thing"))
    second = rng.choice((*found.property.tools.split("|"), "value", "result", "answer"))
    whole = isinstance(found.outcome, int)
    if whole and isinstance(found.value, str) and rng.random() < 0.3:
        first = v.word(rng)  # no name that was seen before: its type says what goes there
    if first == second:
        second = "value"
    fields = [
        Param(first, dict(found.tool.params[0].schema), v.word),
        Param(second, dict(INTEGER if whole else STRING), v.word),
    ]
    if rng.random() < 0.3:
        fields.reverse()
    description = rng.choice((
        "The final response which ends this conversation", "Return the result.", "The answer to the user's question.", "",
    ))  # fmt: skip
    for tool in rng.sample((found.tool, Tool(name, description, fields)), 2):
        conv.offer(spec(rng, tool))
    if rng.random() < 0.7:
        ending = expand(rng, "(| Then give the result.| (Finish|End) with {n}.| Look it up, then give the result.)")  # fmt: skip
        text = _specialist(rng, _role(rng), expand(rng, found.property.knows)) + ending
        _system(conv, text.replace("{n}", name))
    conv.user(found.ask)
    args = ", ".join(f"{k} = {show(x)}" for k, x in found.arguments.items())
    thought = think(rng, conv, tool_use.CALL_THOUGHTS, name=found.tool.name, args=args)
    conv.call((found.tool.name, found.arguments), thought=thought)
    conv.result(found.result)
    given = {first: found.value, second: found.outcome if whole else show(found.outcome)}
    thought = think(rng, conv, ("The {p} is {a}. (Now|I finish with) {n}.",), p=second, a=show(found.outcome), n=name)  # fmt: skip
    conv.call((name, {p.name: given[p.name] for p in fields}), thought=thought)


# ---- calls and results as plain text ----------------------------------------------------------------


def _notional(rng: random.Random, final: str) -> str:
    """An example inside a manual, with tools that are not there."""
    tool = random_tool(rng, most=2)
    arguments = {p.name: p.make(rng) for p in tool.params}
    action = json.dumps({"name": tool.name, "arguments": arguments}, ensure_ascii=False)
    value = show(rng.choice((v.integer, v.phrase, v.code))(rng))
    end = json.dumps({"name": final, "arguments": {"answer": value}}, ensure_ascii=False)
    task = explicit_ask(rng, tool, arguments)
    return f'Task: "{task}"\n\nAction:\n{action}\nObservation: {value}\n\nAction:\n{end}\n'


def _manual(rng: random.Random, tools: list[Tool], final: str) -> str:
    """A long system prompt about actions and observations: format, examples, tools, rules."""
    parts = [
        fill(rng, ("You are (an expert|a capable|a careful) (assistant|agent) who (can solve any task|solves tasks) (using|with|by) tool calls.(| You will be given a task to solve as best you can.)",
                   "(Solve|You solve) (tasks|the task) (with|by calling) tools(| step by step)."), {}),
        fill(rng, ("(The|Each) tool call (you write |)is an action(: after|; after) (the tool is executed|it), you (will |)get (the|its) result (of the tool call |)as an (\"observation\"|observation).", "After (each|every) action (comes|there is) an observation(| with its result)."), {}),
        f'{expand(rng, "(To give|To provide|For) the final answer(| to the task), (use|call) the")} "{final}" tool.{expand(rng, "(| It is the only way to (complete|finish) the task.)")}',
    ]  # fmt: skip
    examples = [
        _notional(rng, final) for _ in range(rng.choices((0, 1, 2, 3), (25, 35, 25, 15))[0])
    ]
    if examples:
        head = expand(rng, "(Here are a few examples|Examples)( using notional tools|):")
        parts.append(head + "\n---\n" + "\n---\n".join(examples))
    lines = []
    for tool in tools:
        takes = {p.name: {"type": p.schema.get("type", "any")} for p in tool.params}
        lines.append(f"- {tool.name}: {tool.description or 'a tool'}\n    Takes inputs: {takes}")
    parts.append(expand(rng, "(You only have|You have) (access to |)these tools:") + "\n" + "\n".join(lines))  # fmt: skip
    if rng.random() < 0.7:
        rules = rng.sample((
            "ALWAYS provide a tool call(|, else you will fail).", "(Always use|Use) the right arguments(| for the tools).", "Call a tool only when needed.",
            "Never (re-do|repeat) a (tool |)call (that you (previously |)did |)with the (exact |)same (parameters|arguments).", "If no tool call is needed, (use|call) {f}.",
        ), rng.randint(2, 4))  # fmt: skip
        shown = [expand(rng, rule).replace("{f}", final) for rule in rules]
        parts.append("Rules:\n" + "\n".join(f"{i}. {rule}" for i, rule in enumerate(shown, 1)))
    if rng.random() < 0.5:
        parts.append(expand(rng, "(Now |)Begin!"))
    return "\n\n".join(parts)


def observed(conv: Conversation) -> None:
    """Calls come back as the assistant's text, results as the user's; a call ends the work."""
    rng = conv.rng
    found = _allowed(conv, "observed")
    final = rng.choice(("final_answer", "final_answer", "finish", "submit_answer", "answer"))
    param = rng.choice(("answer", "answer", "result", "text"))
    ending = Tool(
        final,
        expand(rng, "(Provides|Gives|Return) (a|the) final answer (to the (given |)problem|of the task)."),
        [Param(param, dict(STRING), v.phrase)],
    )  # fmt: skip
    for tool in (found.tool, ending):
        conv.offer(spec(rng, tool))
    _system(conv, _manual(rng, [found.tool, ending], final))
    ask = found.ask
    if rng.random() < 0.4:
        ask = explicit_ask(rng, found.tool, found.arguments)
    conv.user(expand(rng, "(New task:\n|New task:\n|Task: |)") + sentence(ask))
    name, arguments = found.tool.name, found.arguments
    if rng.random() < 0.45:
        args = ", ".join(f"{k} = {show(x)}" for k, x in arguments.items())
        thought = think(rng, conv, tool_use.CALL_THOUGHTS, name=name, args=args)
        conv.call((name, arguments), thought=thought)
        return
    call = {"id": f"call_{v.letters(rng, 6, 24)}", "type": "function", "function": {"name": name, "arguments": arguments}}  # fmt: skip
    shown = rng.choice((str([call]), json.dumps([call], ensure_ascii=False)))
    conv.muted.add(len(conv.messages))
    conv.answer(f"Calling tools:\n{shown}", scored=False)
    conv.user("Observation:\n" + found.result)
    thought = think(rng, conv, ("The answer is {a}. (I finish with|Now) {n}.",), a=found.result, n=final)  # fmt: skip
    conv.call((final, {param: found.result}), thought=thought)


# ---- tasks that build on earlier ones ---------------------------------------------------------------

_PIECES = "note notice sign label message line letter card post report memo headline".split()
_WRITES = (
    "(Write|Make|Draft|Compose) a (short |){piece} (for|about|on|with) {what}.",
    "(Turn|Put) (this|the result|what was found) into a (short |){piece}.",
    "A {piece} (for|about) {what}.",
    "(Tell|Inform) {who} (about {what}|in a {piece}).",
)
_EXPECTED = "(One (short |)(line|sentence)(| with the (result|value|facts)).|A (short |){piece}.|The {piece}.|The text.)"


def build_on(conv: Conversation) -> None:
    """A writer gets an earlier task's result as context, and no tools."""
    rng = conv.rng
    found = _allowed(conv, "build_on")
    piece = rng.choice(_PIECES)
    role = f"{piece} writer" if rng.random() < 0.4 else _role(rng)
    goal = fill(rng, ("Write {p}s", "(Write|Make) (short|clear|good) {p}s", "{x}"), {"p": piece, "x": v.phrase(rng)})  # fmt: skip
    story = fill(rng, ("You (write|have written) {p}s for (years|{f}).", "{s}.", "You (like|love) {w}."),
                 {"p": piece, "f": v.company(rng), "s": sentence(v.phrase(rng)), "w": v.words(rng, 1, 2)})  # fmt: skip
    _system(conv, f"You are {sentence(role)}. {story}\nYour personal goal is: {goal}")
    slots = {"piece": piece, "what": rng.choice((found.thing, f"the {found.property.name} of {found.thing}", "visitors", v.phrase(rng))), "who": v.person(rng)}  # fmt: skip
    task = fill(rng, _WRITES, slots)
    expected = fill(rng, _EXPECTED, slots)
    found_out, facts = rng.choice(found.answers), found.facts
    if rng.random() < 0.4:
        found_out, facts = note(rng)
    context = rng.choice((
        f"This is the context you're working with:\n{found_out}", f"Context:\n{found_out}", f"Result of the earlier task:\n{found_out}", f"What is known so far: {found_out}",
    ))  # fmt: skip
    criteria = rng.choice((
        f"This is the expected criteria for your final answer: {expected}\nyou MUST return the actual complete content as the final answer, not a summary.", f"Expected output: {expected}",
    ))  # fmt: skip
    end = rng.choice(("\n\nProvide your complete response:", "\n\nProvide your complete response:", "\n\nBegin!", ""))  # fmt: skip
    conv.user(
        f"{rng.choice(('Current Task: ', 'Task: ', ''))}{task}\n\n{criteria}\n\n{context}{end}"
    )
    told = found_out if found_out.endswith(".") else found_out + "."
    written = fill(rng, ("{s}", "{N}: {s}", "(Please note|For your information): {s}"), {"s": told, "N": sentence(piece)})  # fmt: skip
    conv.answer(written, think(rng, conv, ("(The context says|It says) {s}",), s=told), facts=facts)


# ---- long tool descriptions ---------------------------------------------------------------------------

_MANUAL_LINES = (
    "(Use|Call) this (tool |)(when|whenever|if) you (need|want) to {x}.", "- By default(,|) it (reads|returns|uses) up to {n} {w}s.", "- (Always|Never) (use|call) it (before|after) {w}.",
    "- (Prefer|Avoid) (this|it) (for|with) (large|many|small) {w}s.", "- (An empty|A missing) {w} (returns|gives) (an error|a warning).", "- `{w}` and `{y}` (are|can be) (optional|given together).",
    "Returns the {w} (and|or) the {y}.", "- (Paths|Names) must be absolute, not relative.", "(Usage|Notes):", "- (Several|Independent) calls may be (made|sent) (at once|in one response).",
)  # fmt: skip


def wordy(rng: random.Random, tools: list[dict[str, Any]]) -> None:
    """Descriptions as long as some frameworks' own tools have them."""
    for tool in tools:
        lines = [
            fill(rng, _MANUAL_LINES, {"x": v.phrase(rng), "n": rng.randint(2, 2000), "w": rng.choice(v.NOUNS), "y": v.word(rng)})
            for _ in range(rng.randint(2, 12))
        ]  # fmt: skip
        said = tool["function"].get("description", "")
        tool["function"]["description"] = "\n".join(filter(None, (said, "", *lines))).strip()


EPISODES = {
    "triage": triage, "handed_over": handed_over, "sub_agent": sub_agent, "typed_final": typed_final, "observed": observed, "build_on": build_on,
}  # fmt: skip

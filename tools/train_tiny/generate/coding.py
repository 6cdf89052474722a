"""Programming episodes: write the file, run the tests, read the failure, fix it, report."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from . import values as v
from .coding_classics import classic_program
from .coding_tasks import (
    Program,
    char_program,
    describe,
    formula_program,
    number_program,
    two_number_program,
    word_program,
)  # fmt: skip
from .conversation import Conversation
from .text import expand, fill, vary_case
from .tool_specs import INTEGER, STRING, Param, Tool, distractors, spec
from .tool_use import think


@dataclass
class Toolbox:
    """The tools of one coding agent, under whatever names."""

    write: Tool
    run: Tool | None
    read: Tool | None
    list: Tool | None

    def tools(self) -> list[Tool]:
        return [t for t in (self.write, self.run, self.read, self.list) if t]


def _text_param(rng: random.Random, names: str, required: bool = True) -> Param:
    return Param(rng.choice(names.split("|")), dict(STRING), v.word, required)


_PATH = "path|path|filename|file|file_path|file_name|name"


def _named(rng: random.Random, verbs: str, nouns: str) -> str:
    """A tool name out of a verb and what it works on, in one of many spellings."""
    verb, noun = rng.choice(verbs.split()), rng.choice(nouns.split())
    parts = [verb, noun]
    roll = rng.random()
    if roll < 0.22:
        parts.insert(
            1,
            rng.choice(
                ("the", "my", "new", "one", "python", "local", "source", "text", v.word(rng))
            ),
        )
    elif roll < 0.32:
        parts.append(rng.choice(("now", "here", "tool", "safely", "to_disk", "v2", v.word(rng))))
    elif roll < 0.38:
        parts.reverse()
    elif roll < 0.46:
        parts = [verb]
    style = rng.random()
    if style < 0.12:
        return parts[0] + "".join(p.capitalize() for p in parts[1:])
    return ("-" if style < 0.17 else "_").join(parts)


_PLACES = "(| in the workspace| under a path| to disk| in the folder| of the project| in your folder| at a path)"


def toolbox(rng: random.Random) -> Toolbox:
    path = expand(rng, f"({_PATH})") if rng.random() < 0.85 else v.word(rng)
    text = expand(rng, "(content|content|text|code|contents|source|body|data|program|lines)")
    write = Tool(
        _named(rng, "write save store put create make update replace dump output edit add", "file file code text source script module document program solution content"),
        expand(rng, "(Write|Save|Store|Put|Create|Replace) (a file|the file|a text file|a Python file|text|code|a program|source text)" + _PLACES
               + "(|, (replacing|overwriting) (it|what was there|an older one)).(| An existing file is replaced.| Returns a short note.)"),
        [Param(path, dict(STRING), v.path), Param(text, dict(STRING), v.phrase)],
    )  # fmt: skip
    run = None
    if rng.random() < 0.93:
        params = []
        if rng.random() < 0.5:
            names = "path|path|file|test_file|target|filename|test_path|tests|module"
            params = [_text_param(rng, names, required=rng.random() < 0.7)]
        if rng.random() < 0.06:
            params.append(Param("timeout", dict(INTEGER), v.integer, required=False))
        run = Tool(
            _named(rng, "run run execute start launch check verify try perform do", "tests tests test suite test_suite test_file checks pytest unit_tests specs code"),
            expand(rng, "(Run|Execute|Start) (the tests|the unit tests|pytest|a test file|the test suite|your tests|the checks)(| of (the|your) (task|project|workspace))"
                   "(| and (return|show|report) (the output|the result|what they print|what they say)).(| The output is text.)"),
            params,
        )  # fmt: skip
    read = list_tool = None
    if rng.random() < 0.5:
        read = Tool(
            _named(
                rng,
                "read open show view load get cat fetch see print",
                "file file text source document content code script",
            ),
            expand(
                rng,
                "(Read|Show|Return|Give back) (a file|the content of a file|a text file|the text|the code)"
                + _PLACES
                + ".",
            ),
            [Param(path, dict(STRING), v.path)],
        )
    if rng.random() < 0.4:
        list_tool = Tool(
            _named(
                rng,
                "list show name see get print find",
                "files files dir folder directory names paths documents tree",
            ),
            expand(
                rng,
                "(List|Show|Name) (the|all|every one of the) files(| in the workspace| of the project| of your folder).",
            ),
            []
            if rng.random() < 0.75
            else [_text_param(rng, "path|directory|folder", required=False)],
        )
    tools = [t for t in (write, run, read, list_tool) if t]
    if len({t.name for t in tools}) < len(tools):
        return toolbox(rng)
    return Toolbox(write, run, read, list_tool)


# ---- the task in words -----------------------------------------------------------------------

_TASKS = (
    "Write a (Python |)function {b:either} in {b:file} that {says}.",
    "(Create|Write|Make|Produce) (a file |the file |){b:file} with a (function|Python function) {b:either} that {says}.",
    "(Implement|Write|Add|Define) {b:either} in {b:file}. It {says}.",
    "(Implement|Write|Add|Define) a function {b:either} that {says}, in (the file |){b:file}.",
    "In {b:file}, (write|define|implement|create) {b:either}: it {says}.",
    "In (the file |){b:file} (write|define|implement|create) a function {b:either} that {says}.",
    "Please (write|implement|code) {b:either}, which {says}. (Put it in|Save it as|The file is|Write it to) {b:file}.",
    "Task: {b:either} {says}. File: {b:file}.", "{b:file} should (contain|have|define) a function {b:either} that {says}.",
    "(Your task|The task)( is|:) write {b:either} in {b:file}. The function {says}.",
    "I need a (Python |)function (called|named) {b:either} that {says}. (Save|Write|Put) it (in|to|into) {b:file}.",
    "(We need|The project needs|Add) {b:file}: a function {b:either} that {says}.",
    "Function: {either}\nFile: {file}\nWhat it does: {says}", "Solve this: a function {b:either} (in|inside) {b:file} {says}.",
    "{b:either} should be in {b:file}. It {says}. (Write it.|Please write it.|Implement it.)",
    "Code up {b:either} in {b:file}. (Behaviour|Behavior|Spec|Description): {says}.",
    "(Build|Develop|Program) a function {b:either} in {b:file} which {says}.",
    "Write a (Python |)function {b:either} that {says}. (Put|Save|Write|Place) it (into|in|to|under) {b:file}.", "(Write|Create|Make) (the |a |)function {b:either}; it {says}. (The file (is called|is|should be)|File:|Use the file) {b:file}.",
    "Module: {b:file}. Name: {b:either}. Purpose: {says}.", "(Somebody|A colleague|Our customer) (needs|wants|is waiting for) {b:either} in {b:file}; it {says}.",
    "{b:file} (has no|lacks|is missing) {b:either}. (What it does|Its job): {says}.",
    "Write {b:file}. (It|The file) (must|should|has to) (contain|define) {b:either}, a function that {says}.",
)  # fmt: skip
_TEST_HINTS = (
    " The tests are in {b:test}.", " (Run|Execute) the tests (in {b:test}|of {b:test}|from {b:test})( afterwards| when done|).", " (Tests|Test file|Its tests): {test}",
    " Then run {b:test}.", " It (must|has to|should) pass {b:test}.", " {b:test} (has|contains|holds) the tests.", " (Check it|Verify it|Test it) with {b:test}.",
    " The test file is {b:test}.", " Make sure (that |)(the tests in {b:test}|{b:test}) pass(es|).",
)  # fmt: skip
_RUN_HINTS = (
    " (Run|Execute) the tests( afterwards| when done| and report|).", " (Make sure|Check that|Ensure) the tests pass.", " Then run the tests.",
    " (Test it|Check it|Verify it)( with the tests|).", " It (must|has to) pass the tests.", "",
)  # fmt: skip
_FIRST_READ = (
    " (Read|Look at|Open) (the tests|the test file) first.", " Start by reading {b:test}.",
    " First (read|open|look at) {b:test}.", " Before you write anything, read {b:test}.",
)  # fmt: skip
_FIRST_LIST = (
    " (List|Look at) the files first.",
    " Start by listing the files.",
    " First see what files there are.",
)
_EXAMPLES = (
    " (For example|Example|E.g.),? {example} (is|returns|gives|==) {value}.",
    " {example} (must be|should be|is|should return) {value}.",
)


def write_up(rng: random.Random, task: Task, hints: tuple[str, ...]) -> str:
    """The request: what to write, in some order with hints about tests and an example."""
    slots: dict[str, Any] = {"says": task.says, "test": task.test_file, "file": task.file}
    slots["name"], slots["sig"] = task.name, f"{task.name}({', '.join(task.params)})"
    slots["either"] = slots["sig"] if task.shows_params else task.name
    slots["example"], slots["value"] = task.example()
    tick = rng.random() < 0.5

    def put(text: str) -> str:
        for key in slots:
            slot = "{" + key + "}"
            text = text.replace("{b:" + key + "}", f"`{slot}`" if tick else slot)
        return text.replace(",?", rng.choice(("", ",")))

    parts = [fill(rng, put(rng.choice(_TASKS)), slots)]
    if rng.random() < 0.2:
        parts.append(fill(rng, put(rng.choice(_EXAMPLES)), slots))
    parts += [fill(rng, put(h), slots) for h in hints]
    return vary_case(rng, "".join(parts))


@dataclass
class Task:
    """One concrete programming task."""

    program: Program
    name: str
    params: list[str]
    shows_params: bool
    says: str
    file: str
    test_file: str
    samples: list[tuple[Any, ...]]

    def code(self) -> str:
        return self.program.code(self.name, self.params)

    def example(self) -> tuple[str, str]:
        shown = ", ".join(repr(a) for a in self.samples[0])
        return f"{self.name}({shown})", repr(execute(self.code(), self.name, self.samples[0]))

    def tests(self) -> str:
        """A test file for it."""
        stem = self.file.rsplit("/", 1)[-1].removesuffix(".py")
        lines = [f"from {stem} import {self.name}", "", "", f"def test_{self.name}():"]
        for sample in self.samples:
            shown = ", ".join(repr(a) for a in sample)
            lines.append(
                f"    assert {self.name}({shown}) == {execute(self.code(), self.name, sample)!r}"
            )
        return "\n".join(lines)


def execute(code: str, name: str, arguments: tuple[Any, ...]) -> Any:
    """What the function returns; an exception's text if it fails. Only for generated code."""
    scope: dict[str, Any] = {}
    try:
        exec(code, scope)
        return scope[name](*arguments)
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"


_PROGRAMS = (
    (classic_program, 46), (number_program, 20), (char_program, 10), (word_program, 12),
    (formula_program, 6), (two_number_program, 6),
)  # fmt: skip
_PARAM_NAMES = {
    "numbers": "numbers values items nums data xs lst", "text": "text s string word sentence phrase value",
    "items": "items values lst data elements xs", "n": "n number num x value k", "a": "a x first left p",
    "b": "b y second right q", "mapping": "mapping d data table counts scores", "words": "words items names strings",
}  # fmt: skip


_NAME_ENDS = "number numbers value values item items list text word words keys pairs of for in from to all it fn".split()  # fmt: skip


def make_task(rng: random.Random, conv: Conversation) -> Task:
    makers, weights = zip(*_PROGRAMS, strict=True)
    while True:
        program = rng.choices(makers, weights)[0](rng)
        name = expand(rng, f"({program.names})")
        roll = rng.random()
        if roll < 0.14:
            name = v.identifier(rng)
        elif roll < 0.34:
            ending = rng.choice((rng.choice(v.NOUNS), rng.choice(_NAME_ENDS), v.pseudo_word(rng)))
            start = rng.choice((*v.VERBS, "my", "the", "do"))
            name = f"{name}_{ending}" if rng.random() < 0.6 else f"{start}_{name}"
        samples = [program.sample(rng) for _ in range(3)]
        plain = program.code(name, program.params)
        fails = any("Error: " in str(execute(plain, name, sample)) for sample in samples)
        if not fails and conv.split.allows("code", program.key, name):
            break
    shows = rng.random() < 0.45
    params = list(program.params)
    if shows:
        params = [rng.choice(_PARAM_NAMES.get(p, p).split()) for p in params]
        if len(set(params)) < len(params):
            params = list(program.params)
    stem = rng.choice(
        (
            name,
            name,
            v.word(rng),
            f"{v.word(rng)}_{v.word(rng)}",
            "solution",
            "utils",
            "main",
            "helpers",
            "tasks",
        )
    )
    folder = rng.choice(("", "", "", "", "src/", f"{v.word(rng)}/"))
    test = rng.choice(
        (
            f"test_{stem}.py",
            f"test_{stem}.py",
            f"tests/test_{stem}.py",
            f"{stem}_test.py",
            f"test_{name}.py",
            "tests.py",
        )
    )
    says = describe(rng, program, params)
    return Task(program, name, params, shows, says, f"{folder}{stem}.py", test, samples)


# ---- mistakes and what the tests say ----------------------------------------------------------

_SWAPS = (
    ("==", "!="), (" + ", " - "), (" > ", " >= "), (" < ", " <= "), ("max(", "min("), ("sum(", "len("), (" * ", " + "),
    ("[::-1]", ""), (".upper()", ".lower()"), (" in ", " not in "), (" not in ", " in "), ("// 2", "/ 2"), (" 1)", ")"), ("sorted(", "list("),
)  # fmt: skip


def mistake(rng: random.Random, task: Task) -> str:
    """The program with a mistake; loops with a condition only get mistakes that end at once."""
    code = task.code()
    head, _, body = code.partition("\n")
    choices = [(a, b) for a, b in _SWAPS if a in body and "for " not in a]
    roll = rng.random()
    if "while" in body or roll < 0.25 or not choices:
        if roll < 0.1:
            return head.rstrip(":") + "\n" + body
        return (
            head
            + "\n"
            + body.replace(
                "return ", rng.choice(("return reslt + ", "retrun ", "return not_there + ")), 1
            )
        )
    a, b = rng.choice(choices)
    return head + "\n" + body.replace(a, b, 1)


_PASSES = (
    "{n} passed in 0.0{d}s", "All tests passed.", "OK", "Ran {n} tests in 0.00{d}s\n\nOK", '{"passed": {n}, "failed": 0}', "exit code 0\n{n} passed",
    "PASSED", "passed", "exit code: 0", "all {n} (tests|checks|assertions) (passed|hold)", "tests: ok", "{n}/{n} tests passed", "ok: {n} passed",
    "============ test session starts ============\ncollected {n} items\n\n{test} {dots} [100%]\n\n============ {n} passed in 0.0{d}s ============",
    "{dots}\n{n} passed in 0.0{d}s", '{"ok": true}', "{test}: PASSED", "exit status 0\nstdout:\n{dots} [100%]\n{n} passed", "True", "All {n} tests passed",
    "{dots}                                                                      [100%]\n{n} passed in 0.{d}1s", "passed: {n}\nfailed: 0", "success", "[exit code 0]\nOK",
)  # fmt: skip
_FAILS = (
    "FAILED: {call} returned {got}, expected {want}", "AssertionError: {call} == {got}, expected {want}", "1 failed\nE  assert {got} == {want}",
    '{"passed": 0, "failed": 1, "error": "{call}: got {got}, want {want}"}', "Traceback (most recent call last):\n  File \"{test}\", line {d}, in <module>\n    assert {call} == {want}\nAssertionError",
    "F\n============ FAILURES ============\n______ test_{name} ______\n\n    def test_{name}():\n>       assert {call} == {want}\nE       assert {got} == {want}\n\n{test}:{d}: AssertionError\n============ 1 failed in 0.0{d}s ============",
    "exit code 1\n{call}: expected {want} but got {got}", "test_{name} failed: {got} != {want}", "expected {want}, got {got}", "FAIL {call} -> {got} (want {want})",
    "exit code: 1\nE       AssertionError: assert {got} == {want}\nFAILED {test}::test_{name}", "not ok: {call} gave {got} instead of {want}",
)  # fmt: skip
_WROTE = (
    "ok", "wrote {size} bytes to {file}", "File written: {file}", "saved", '{"ok": true}', "done", "Wrote {file} ({size} characters)", "{file} saved", "written",
    "Successfully wrote {file}", "OK: {file}", "{size} bytes written", "created {file}", "File {file} has been written.", "{file} written", "true",
)  # fmt: skip
_REPORTS = (
    "(Done|Finished|Ready): {b:name} is in {b:file} and (all|the) tests pass.", "I wrote {b:name} in {b:file}; (the|all) tests pass.",
    "{b:name} (is done|works|is finished). The tests in {b:test} pass.", "The function {b:name} (in {b:file} |)(works|is ready): all tests (pass|passed).",
    "(All tests pass|The tests pass). {b:name} is (in|saved in) {b:file}.",
)  # fmt: skip
_NO_RUN_REPORTS = (
    "(Done|Finished): {b:name} is in {b:file}.",
    "I wrote {b:name} (in|to) {b:file}.",
    "{b:file} now (has|contains) {b:name}.",
)
_GAVE_UP = (
    "The tests still fail: {got}. {b:name} is not solved.",
    "I could not solve it: {b:test} still fails.",
)

_WRITE_THOUGHTS = (
    "(I write|I will write|Let me write) {name} (first|to {file})(, then (I run the tests|test it)|).",
    "{name} goes into {file}. (Then the tests.|Then I test it.|)",
    "(A small function|Easy|This is simple). (I write the file.|Write {file} now.|)",
    "The task: {name}. (I start with the file.|First the code.|)",
)
_RUN_THOUGHTS = (
    "(Now|Next)(,|) (I run |run |)the tests.",
    "The file is (there|written). Run the tests.",
    "Let me (test|check) it.",
    "(Time to test|Now test) {name}.",
)
_DONE_THOUGHTS = (
    "(All tests pass|The tests pass|It passes). (I can report|I report|Done).",
    "{name} works. (I report that.|Finished.)",
    "(Green|Passed). Report it.",
)
_FIX_THOUGHTS = (
    "The test (failed|fails): expected {want}, got {got}. I (fix|correct) {name}.",
    "(There is a mistake|Something is wrong) in {name}. I (rewrite|correct) it.",
    "{got} is wrong, it should be {want}. (Fix it.|I correct the file.)",
    "(A failure|It failed). I write {file} again, (corrected|fixed).",
)
_REPAIR_THOUGHTS = (
    "(I see|There is) the mistake. I (fix|correct|rewrite) {name}.",
    "{name} is wrong there. I write {file} again.",
)
_READ_THOUGHTS = (
    "(First|I) (I |)(read|look at) {file}.",
    "Let me (see|read) {file}( first|).",
    "{file} first.",
)
_LIST_THOUGHTS = (
    "(First|Let me) see the files.",
    "What files are there?",
    "I list the files first.",
)

_SYSTEMS = (
    "You are (a|a careful|an expert|a helpful) (Python |)(programmer|coding agent|developer|engineer|coding assistant).(| You work in a (small |)workspace.| You have tools.)(| Use {write} to write files.)(| Keep answers short.| Be brief.| Report (briefly|in one sentence) when done.)",
    "(You write|Write) (small |)Python (functions|programs) with tools: {write} (writes|saves) a file(, {run} runs the tests|). (Fix what fails.|Repeat until the tests pass.|Stop when the tests pass.)(| Then (report|say so) in one sentence.)",
    "You are (agent|worker) {n} (of|in) a (crew|team) of (coders|coding agents|programmers). (Solve|Do) (your|the) task with the tools. (Finish|End) with a (short|one-line) (report|summary).",
    "You are {who}, a (Python developer|coder|software engineer).(| You solve (one task|tasks) at a time.) (Write the code, run the tests, fix failures, then report.|First write the file, then run its tests.|Work step by step with the tools.)",
    "Solve the (programming |coding |)task. (Steps|Procedure|Rules): 1. write the file 2. run the tests 3. (if they fail, fix the file|fix failures) 4. (report|tell the result).",
    "(Several|Four|Three|Two) (agents|coders|programmers) (share|work on) (this|a) (workspace|repository|project). You (handle|do|solve) one task. (Use the tools.|Call tools, one at a time.)(| When all tests pass, (answer|reply) with a short summary.)",
)  # fmt: skip


def system_prompt(rng: random.Random, box: Toolbox) -> str:
    run = box.run.name if box.run else "a person"
    return fill(
        rng,
        _SYSTEMS,
        {"write": box.write.name, "run": run, "n": rng.randint(1, 6), "who": rng.choice(v.FIRST)},
    )


# ---- episodes ---------------------------------------------------------------------------------


class Session:
    """The turns of one coding episode."""

    def __init__(self, conv: Conversation, box: Toolbox, task: Task, named_test: bool) -> None:
        self.conv, self.rng, self.box, self.task, self.named_test = (
            conv,
            conv.rng,
            box,
            task,
            named_test,
        )

    def write(
        self, code: str, thoughts: tuple[str, ...], muted: bool = False, **slots: Any
    ) -> None:
        task, rng, tool = self.task, self.rng, self.box.write
        thought = think(rng, self.conv, thoughts, name=task.name, file=task.file, **slots)
        arguments = {tool.params[0].name: task.file, tool.params[1].name: code}
        self.conv.call((tool.name, arguments), thought=thought, muted=muted)
        self.conv.result(fill(rng, _WROTE, {"file": task.file, "size": len(code)}))

    def run(self, outcome: str) -> None:
        assert self.box.run
        arguments = {}
        if self.box.run.params and self.box.run.params[0].name != "timeout":
            slot = self.box.run.params[0]
            if self.named_test:
                arguments[slot.name] = self.task.test_file
            elif slot.required:
                arguments[slot.name] = self.task.file
        thought = think(self.rng, self.conv, _RUN_THOUGHTS, name=self.task.name)
        self.conv.call((self.box.run.name, arguments), thought=thought)
        self.conv.result(outcome)

    def look(self, file: str, content: str) -> None:
        assert self.box.read
        thought = think(self.rng, self.conv, _READ_THOUGHTS, file=file)
        self.conv.call((self.box.read.name, {self.box.read.params[0].name: file}), thought=thought)
        self.conv.result(content)

    def passes(self) -> str:
        n = self.rng.randint(1, 9)
        slots = {"n": n, "d": self.rng.randint(1, 9), "test": self.task.test_file, "dots": "." * n}
        return fill(self.rng, _PASSES, slots)

    def fails(self, code: str) -> tuple[str, str, str] | None:
        """(test output, expected, got) of wrong code; None if no sample shows the mistake."""
        task = self.task
        for sample in task.samples:
            want = execute(task.code(), task.name, sample)
            got = execute(code, task.name, sample)
            if got != want:
                call = f"{task.name}({', '.join(repr(a) for a in sample)})"
                slots = {"call": call, "got": repr(got), "want": repr(want), "d": self.rng.randint(2, 9),
                         "test": task.test_file, "name": task.name}  # fmt: skip
                if isinstance(got, str) and "Error: " in got and self.rng.random() < 0.7:
                    return got, repr(want), got
                return fill(self.rng, _FAILS, slots), repr(want), repr(got)
        return None

    def report(
        self, templates: tuple[str, ...], thoughts: tuple[str, ...] = _DONE_THOUGHTS, **more: Any
    ) -> None:
        slots = {
            "name": self.task.name,
            "file": self.task.file,
            "test": self.task.test_file,
            **more,
        }
        text = self.rng.choice(templates)
        for key in ("name", "file", "test"):
            slot = "{" + key + "}"
            text = text.replace("{b:" + key + "}", self.rng.choice((f"`{slot}`", slot)))
        thought = think(self.rng, self.conv, thoughts, name=self.task.name)
        self.conv.answer(fill(self.rng, text, slots), thought, facts=[self.task.name])


def coding(conv: Conversation) -> None:
    """Write, test, (fix, test again,) report."""
    rng = conv.rng
    box = conv.extra.get("toolbox") or toolbox(rng)
    if "toolbox" not in conv.extra:
        conv.extra["toolbox"] = box
        for tool in box.tools() + (distractors(rng, 1, 2) if rng.random() < 0.2 else []):
            conv.offer(spec(rng, tool))
    task = make_task(rng, conv)
    named_test = bool(box.run) and rng.random() < 0.65
    hints = [rng.choice(_TEST_HINTS if named_test else _RUN_HINTS)] if box.run else []
    reads = box.read is not None and named_test and rng.random() < 0.3
    lists = box.list is not None and rng.random() < 0.3
    if lists:
        hints.append(rng.choice(_FIRST_LIST))
    elif reads:
        hints.append(rng.choice(_FIRST_READ))
    session = Session(conv, box, task, named_test)
    wrong = mistake(rng, task)
    failure = session.fails(wrong) if box.run else None
    if box.read and failure and rng.random() < 0.12:
        _repair(session, wrong)
        return
    conv.user(write_up(rng, task, tuple(hints)))
    conv.extra["task"] = task
    if lists and box.list:
        conv.call((box.list.name, {}), thought=think(rng, conv, _LIST_THOUGHTS))
        conv.result(listing(rng, task.test_file))
    elif reads:
        session.look(task.test_file, task.tests())
    if failure and rng.random() < 0.45:
        session.write(wrong, _WRITE_THOUGHTS, muted=True)
        session.run(failure[0])
        if rng.random() < 0.12:
            _keeps_failing(session, failure)
            return
        session.write(task.code(), _FIX_THOUGHTS, want=failure[1], got=failure[2])
    else:
        session.write(task.code(), _WRITE_THOUGHTS)
    if not box.run:
        session.report(_NO_RUN_REPORTS)
        return
    session.run(session.passes())
    session.report(_REPORTS)


def listing(rng: random.Random, test_file: str) -> str:
    """One to five files, the tests among them, in the styles of tools that list a folder."""
    others = {
        rng.choice((f"{v.word(rng)}.py", f"{v.word(rng)}.py", "README.md", v.path(rng), "data.csv", "__init__.py", "setup.cfg", "notes.txt"))
        for _ in range(rng.choices(range(5), (40, 15, 20, 15, 10))[0])
    }  # fmt: skip
    names = sorted({test_file, *others})
    style = rng.random()
    if style < 0.12:
        return json.dumps(names)
    if style < 0.2:
        return str(names)
    if style < 0.28:
        return json.dumps({"files": names})
    if style < 0.38:
        return "\n".join(f"- {name}" for name in names)
    if style < 0.46:
        return "\n".join(f"{name} ({rng.randint(20, 4000)} bytes)" for name in names)
    if style < 0.52:
        return f"{len(names)} file{'s' if len(names) > 1 else ''}: {', '.join(names)}"
    if style < 0.58:
        return "./\n" + "\n".join(f"  {name}" for name in names)
    return rng.choice(("\n", "\n", " ", ", ")).join(names)


def _keeps_failing(session: Session, failure: tuple[str, str, str]) -> None:
    """The right code, and tests that fail all the same: say so after two tries."""
    for _ in range(2):
        session.write(session.task.code(), _FIX_THOUGHTS, want=failure[1], got=failure[2])
        session.run(failure[0])
    session.report(_GAVE_UP, ("It still fails. I (stop|give up) and say so.",), got=failure[2])


_REPAIRS = (
    "The tests in {test} fail. {name} in {file} (should|is meant to) do this: it {says}. (Find and fix|Fix|Correct) (the bug|it).",
    "(Fix|Repair|Correct|Debug) {name} in {file}: it {says}, but {test} fails.",
    "There is a bug in {file}. The function {name} {says}, or should. (Please fix it.|Fix it and run {test}.)",
)


def _repair(session: Session, wrong: str) -> None:
    """A broken file that is already there: read it, write it anew, test, report."""
    task, rng = session.task, session.rng
    slots = {"test": task.test_file, "name": task.name, "file": task.file, "says": task.says}
    session.named_test = True
    session.conv.user(vary_case(rng, fill(rng, _REPAIRS, slots)))
    session.look(task.file, wrong)
    session.write(task.code(), _REPAIR_THOUGHTS)
    session.run(session.passes())
    session.report(_REPORTS)

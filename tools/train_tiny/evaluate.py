"""Measure a checkpoint: success on held-out combinations and on paraphrases, draft acceptance.

python -m tools.train_tiny.evaluate CHECKPOINT.pt TOKENIZER OUT.json [--documents 48]
python -m tools.train_tiny.evaluate FILE.gguf TOKENIZER OUT.json      # as shipped
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from . import paraphrases
from . import tokenizer as vocabulary
from .decode import StepDecoder, acceptance
from .generate import corpus
from .generate.coding import Task, Toolbox
from .generate.conversation import Conversation, Message
from .model import TinyModel
from .shape import Shape

_CODER = "You are a coder in a team. Use your tools to finish your task, then say that it is done."
BATCH, LENGTH, LIMIT = 256, 2560, 256
OPEN_ENDED = ("story", "poem", "listing", "pick", "plan", "made_up", "summary", "shaped", "forced")
_CALL = re.compile(r"<tool_call>\n<function=([^>\n]+)>\n(.*?)</function>\n</tool_call>", re.S)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.S)


def parse(text: str) -> tuple[str, list[tuple[str, dict[str, str]]], bool]:
    """(visible content, tool calls with raw argument texts, whether the turn ended)."""
    ended = text.endswith("<|im_end|>")
    text = text.removesuffix("<|im_end|>").rpartition("</think>")[2]
    calls = [(m[1], dict(_PARAMETER.findall(m[2]))) for m in _CALL.finditer(text)]
    return _CALL.sub("", text).strip(), calls, ended


def raw(call: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """A message's tool call with arguments as the template writes them."""
    function = call["function"]
    shown = {
        k: x if isinstance(x, str) else json.dumps(x, ensure_ascii=False)
        for k, x in function["arguments"].items()
    }
    return function["name"], shown


class Writer:
    """Turns prompts into assistant texts, many at a time."""

    def __init__(self, model: TinyModel, tokenizer: Tokenizer, batch: int, length: int) -> None:
        self.tokenizer = tokenizer
        end = tokenizer.token_to_id(vocabulary.END)
        self.decoder = StepDecoder(model, batch, length, end)
        self.sequences: list[tuple[list[int], int]] = []

    def write(self, prompts: list[str], limit: int = LIMIT, temperature: float = 0.0) -> list[str]:
        encoded = [e.ids for e in self.tokenizer.encode_batch(prompts)]
        order = sorted(range(len(prompts)), key=lambda i: len(encoded[i]))
        texts = [""] * len(prompts)
        size = self.decoder.batch
        for at in range(0, len(order), size):
            part = [
                i for i in order[at : at + size] if len(encoded[i]) + limit <= self.decoder.length
            ]
            if not part:
                continue
            made = self.decoder.generate([encoded[i] for i in part], limit, temperature)
            for i, ids in zip(part, made, strict=True):
                texts[i] = self.tokenizer.decode(ids, skip_special_tokens=False)
                self.sequences.append((encoded[i] + ids, len(encoded[i])))
        return texts


class EngineWriter:
    """The same over a GGUF file by this project's engine: what is shipped, quantised."""

    def __init__(self, file: Path, tokenizer: Tokenizer, length: int) -> None:
        from openjet_provider import Engine

        self.tokenizer, self.length = tokenizer, length
        self.engine = Engine(file, agents=8, context=length)

    def write(self, prompts: list[str], limit: int = LIMIT) -> list[str]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda prompt: self._one(prompt, limit), prompts))

    def _one(self, prompt: str, limit: int) -> str:
        from openjet_provider._core import TokenRequest, TokenSampling

        ids = self.tokenizer.encode(prompt).ids
        if len(ids) + limit > self.length:
            return ""
        greedy = TokenSampling(temperature=0.0)
        request = TokenRequest(tokens=ids, max_tokens=limit, sampling=greedy)
        running = self.engine.generate(request)
        made: list[int] = []
        while tokens := running.take():
            made += [token.id for token in tokens]
        text = self.tokenizer.decode(made, skip_special_tokens=False)
        ended = running.finish == "stop" and not text.endswith(vocabulary.END)
        return text + vocabulary.END if ended else text


def judge(doc: Conversation, index: int, text: str) -> bool:
    """Whether a written turn is as good as the document's own."""
    content, calls, ended = parse(text)
    message = doc.messages[index]
    if "tool_calls" in message:
        wanted = [raw(c) for c in message["tool_calls"]]
        if doc.expected.get(index) == []:  # its arguments are free
            return ended and [name for name, _ in calls] == [name for name, _ in wanted]
        return ended and calls == wanted
    if calls or not ended or not content:
        return False
    facts = doc.expected.get(index)
    if facts is None:
        return content == message["content"]
    return all(fact in content for fact in facts)


def held_out(writer: Writer | EngineWriter, documents: int) -> dict[str, Any]:
    """Success per task kind: every scored turn of held-out documents, exact calls and facts."""
    cases: list[tuple[str, Conversation, int]] = []
    for kind in corpus.EPISODES:
        for i in range(documents):
            doc = corpus.document(random.Random(f"{kind}{i}"), held_out=True, kind=kind)
            turns = doc.scored
            if kind in OPEN_ENDED:
                turns = [len(doc.messages) - 1]
                doc.expected[turns[0]] = []
            cases += [(kind, doc, turn) for turn in turns]
    texts = writer.write([doc.prompt(turn) for _, doc, turn in cases])
    right: dict[str, list[bool]] = defaultdict(list)
    failures = []
    for (kind, doc, turn), text in zip(cases, texts, strict=True):
        good = judge(doc, turn, text)
        right[kind].append(good)
        if not good:
            failures.append(
                {
                    "kind": kind,
                    "prompt": doc.prompt(turn)[-700:],
                    "got": text,
                    "want": doc.messages[turn],
                }
            )
    rates = {k: {"turns": len(r), "success": round(sum(r) / len(r), 4)} for k, r in right.items()}
    return {"kinds": rates, "failures": failures}


# ---- coding, as whole episodes -----------------------------------------------------------------


class Workspace:
    """The simulated tools of one coding episode."""

    def __init__(self, box: Toolbox, asserts: list[str]) -> None:
        self.box, self.asserts, self.files = box, asserts, dict[str, str]()

    def use(self, name: str, arguments: dict[str, str]) -> str:
        values = list(arguments.values())
        if name == self.box.write.name and len(values) == 2:
            self.files[values[0]] = values[1]
            return f"wrote {len(values[1])} bytes to {values[0]}"
        if self.box.run and name == self.box.run.name:
            fault = self.check()
            return f"{len(self.asserts)} passed in 0.02s" if not fault else "1 failed\n" + fault
        if self.box.read and name == self.box.read.name and values:
            return self.files.get(values[0]) or "\n".join(f"assert {a}" for a in self.asserts)
        if self.box.list and name == self.box.list.name:
            return "\n".join([*self.files, "tests.py"])
        return f"Error: unknown tool {name}"

    def check(self) -> str:
        """Empty if every assert holds on the files, else what went wrong."""
        scope: dict[str, Any] = {}
        try:
            for source in self.files.values():
                exec(source, scope)
            for test in self.asserts:
                if not eval(test, scope):
                    return f"AssertionError: {test}"
        except Exception as fault:
            return f"{type(fault).__name__}: {fault}"
        return "" if self.files else "no such file"


def episodes(
    writer: Writer | EngineWriter, starts: list[tuple[Conversation, Workspace]], turns: int = 8
) -> list[dict[str, Any]]:
    """Let the model act until it answers in words; the outcome of each episode."""
    outcomes = [{"answered": False, "turns": 0} for _ in starts]
    for _ in range(turns):
        active = [i for i, o in enumerate(outcomes) if not o["answered"]]
        if not active:
            break
        prompts = [starts[i][0].prompt(len(starts[i][0].messages)) for i in active]
        for i, text in zip(active, writer.write(prompts), strict=True):
            doc, workspace = starts[i]
            content, calls, _ = parse(text)
            thought = text.partition("</think>")[0].strip() if doc.thinking else ""
            items = [{"function": {"name": n, "arguments": a}} for n, a in calls]
            message: Message = {
                "role": "assistant",
                "content": content,
                "reasoning_content": thought,
            }
            doc.messages.append({**message, "tool_calls": items} if items else message)
            outcomes[i]["turns"] += 1
            outcomes[i]["answered"] = not items
            for name, arguments in calls:
                doc.messages.append({"role": "tool", "content": workspace.use(name, arguments)})
    for outcome, (doc, workspace) in zip(outcomes, starts, strict=True):
        outcome["solved"] = outcome["answered"] and not workspace.check()
        if not outcome["solved"]:
            outcome["messages"] = doc.messages[-4:]
    return outcomes


def held_out_coding(writer: Writer | EngineWriter, count: int) -> dict[str, Any]:
    starts = []
    while len(starts) < count:
        doc = corpus.document(
            random.Random(f"code{len(starts)}-{count}"), held_out=True, kind="coding"
        )
        task: Task | None = doc.extra.get("task")
        first = next(i for i, m in enumerate(doc.messages) if m["role"] == "user")
        if task is None:  # a repair: the broken file would be missing
            count -= 1
            continue
        doc.messages = doc.messages[: first + 1]
        asserts = []
        for sample in task.samples:
            shown = ", ".join(repr(a) for a in sample)
            scope: dict[str, Any] = {}
            exec(task.code(), scope)
            asserts.append(f"{task.name}({shown}) == {scope[task.name](*sample)!r}")
        starts.append((doc, Workspace(doc.extra["toolbox"], asserts)))
    outcomes = episodes(writer, starts)
    solved = sum(o["solved"] for o in outcomes)
    return {
        "episodes": len(outcomes),
        "solved": round(solved / len(outcomes), 4),
        "failures": [o for o in outcomes if not o["solved"]][:20],
    }


# ---- paraphrases by hand -----------------------------------------------------------------------


def hand_written(writer: Writer | EngineWriter) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for thinking in (False, True):
        docs = []
        for case in paraphrases.CASES:
            doc = Conversation(
                random.Random(0), corpus.Split(True), thinking=thinking, tools=list(case.tools)
            )
            if case.system:
                doc.messages.append({"role": "system", "content": case.system})
            doc.user(case.user)
            doc.messages += case.after
            docs.append(doc)
        texts = writer.write([d.prompt(len(d.messages)) for d in docs])
        for case, text in zip(paraphrases.CASES, texts, strict=True):
            content, calls, ended = parse(text)
            wanted = [raw({"function": {"name": n, "arguments": a}}) for n, a in case.calls]
            good = ended and calls == wanted and (bool(calls) or bool(content))
            good = good and all(c in content for c in case.contains)
            results.append({"user": case.user, "good": good, "got": text, "thinking": thinking})
        results += _hand_written_coding(writer, thinking)
    good = sum(r["good"] for r in results)
    return {
        "cases": len(results),
        "success": round(good / len(results), 4),
        "failures": [r for r in results if not r["good"]],
    }


def _hand_written_coding(writer: Writer | EngineWriter, thinking: bool) -> list[dict[str, Any]]:
    write = paraphrases.tool("write_file", "Write a file.", path="string", content="string")
    run = paraphrases.tool("run_tests", "Run a test file.", path_="string")
    from .generate.tool_specs import STRING, Param, Tool

    box = Toolbox(
        Tool("write_file", "", [Param("path", STRING, str), Param("content", STRING, str)]),
        Tool("run_tests", ""),
        None,
        None,
    )
    starts = []
    for case in paraphrases.CODING:
        doc = Conversation(
            random.Random(0), corpus.Split(True), thinking=thinking, tools=[write, run]
        )
        doc.messages.append(
            {
                "role": "system",
                "content": _CODER,
            }
        )
        doc.user(case.user)
        starts.append((doc, Workspace(box, list(case.asserts))))
    outcomes = episodes(writer, starts)
    return [
        {"user": c.user, "good": o["solved"], "got": o.get("messages"), "thinking": thinking}
        for c, o in zip(paraphrases.CODING, outcomes, strict=True)
    ]


# ---- long contexts and drafts --------------------------------------------------------------------


def long_context(
    writer: Writer | EngineWriter, length: int, count: int, limit: int = 150
) -> dict[str, Any]:
    """The last scored turn of held-out documents whose prompt has 4K to 8K tokens."""
    cases: list[tuple[Conversation, int]] = []
    seed = 0
    while len(cases) < count:
        rng = random.Random(f"long{seed}")
        seed += 1
        doc = corpus.document(rng, held_out=True, turns=rng.randint(14, 30))
        turns = [
            t
            for t in doc.scored
            if 4096 < len(writer.tokenizer.encode(doc.prompt(t)).ids) <= length - limit
        ]
        if turns:
            cases.append((doc, turns[-1]))
    texts = writer.write([d.prompt(t) for d, t in cases], limit)
    good = [judge(d, t, x) for (d, t), x in zip(cases, texts, strict=True)]
    failures = [
        {"got": x, "want": d.messages[t]}
        for (d, t), x, g in zip(cases, texts, good, strict=True)
        if not g
    ]
    return {"cases": count, "success": round(sum(good) / count, 4), "failures": failures[:20]}


def draft_acceptance(model: TinyModel, writer: Writer, count: int) -> dict[str, list[float]]:
    """Acceptance by position on the model's own text over the training mix (held out)."""
    prompts = []
    for i in range(count):
        doc = corpus.document(random.Random(f"draft{i}"), held_out=True)
        assistant = [j for j, m in enumerate(doc.messages) if m["role"] == "assistant"]
        prompts.append(doc.prompt(random.Random(i).choice(assistant)))
    found = {}
    for temperature in (0.0, 1.0):
        writer.sequences.clear()
        writer.write(prompts, temperature=temperature)
        found[f"temperature {temperature:g}"] = [
            round(a, 4) for a in acceptance(model, writer.sequences, temperature)
        ]
    return found


def load(checkpoint: Path, device: torch.device) -> TinyModel:
    saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
    model = TinyModel(Shape(**saved["shape"]))
    model.load_state_dict({k: x.float() for k, x in saved["state"].items()})
    return model.to(device).eval()


def sections(args: argparse.Namespace, tokenizer: Tokenizer) -> dict[str, Any]:
    """What is measured, by name, each a function without arguments."""
    count = args.documents
    if args.model.suffix == ".gguf":
        writer: Writer | EngineWriter = EngineWriter(args.model, tokenizer, 8192)
        long_writer, drafts, long_cases = writer, {}, count // 2
    else:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = load(args.model, device)
        batch = BATCH if device.type == "cuda" else 32
        writer = step_writer = Writer(model, tokenizer, batch, LENGTH)
        long_cases = batch // 8
        long_writer = Writer(model, tokenizer, long_cases, 8192)
        drafts = {"acceptance": lambda: draft_acceptance(model, step_writer, 4 * count)}
    return {
        "held out": lambda: held_out(writer, count),
        "coding": lambda: held_out_coding(writer, 2 * count),
        "paraphrases": lambda: hand_written(writer),
        **drafts,
        "long context": lambda: long_context(long_writer, 8192, long_cases),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a checkpoint (.pt) or a file to ship (.gguf)")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--documents", type=int, default=48, help="per kind")
    parser.add_argument("--only", default="", help="one section")
    args = parser.parse_args()
    begin = time.monotonic()
    report: dict[str, Any] = {}
    for name, section in sections(args, vocabulary.load(args.tokenizer)).items():
        if args.only not in ("", name):
            continue
        with torch.no_grad():
            report[name] = section()
        short = {k: x for k, x in report[name].items() if k != "failures"}
        print(f"[{time.monotonic() - begin:.0f} s] {name}: {json.dumps(short)}", flush=True)
        args.out.write_text(json.dumps(report, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()

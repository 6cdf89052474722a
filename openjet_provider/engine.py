"""Engine: open a model once per process and serve it to many threads and tasks.

    from openjet_provider import Engine
    from openjet_provider.chat.types import ChatRequest

    with Engine("openjet-tiny") as engine:
        messages = [{"role": "user", "content": "Hello!"}]
        for delta in engine.chat(ChatRequest(messages=messages)):
            print(delta.content, end="", flush=True)

Every Engine of the same file and device in a process is a handle on one shared core, so adapters
open their own without loading the weights again; the core closes with its last handle.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjet_provider import _build_info, defaults, models
from openjet_provider._core import Core, EngineStats, SavedFile, TokenRequest
from openjet_provider._native import Model, Native, load
from openjet_provider.devices import Backend, DeviceLock, choose_backend
from openjet_provider.errors import EngineClosedError, InvalidRequestError
from openjet_provider.generation import Generation
from openjet_provider.planning import MemoryPlan, available_memory, plan_memory

if TYPE_CHECKING:
    from openjet_provider.chat.session import ChatFormat, ChatStream
    from openjet_provider.chat.types import ChatRequest

log = logging.getLogger("openjet_provider")

#: A prompt of more contexts than these is refused without being tokenised to its end.
COUNTED_CONTEXTS = 4
_CLOSE_S = 60.0  # how long opening an engine waits for others of this process to close


@dataclass(frozen=True, kw_only=True)
class ScriptRule:
    """What the scripted backend answers to a conversation that contains `match` ("" always does).

    Texts may name special tokens. per_step: tokens a step; delay_s: sleep in each step;
    fault_after: the backend fails after this many tokens of the reply.
    """

    match: str = ""
    reply: str = ""
    per_step: int = 1
    delay_s: float = 0.0
    fault_after: int | None = None


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of a core. None means not said: the environment's value or the default."""

    agents: int | None = None
    context: int | None = None
    kv: str | None = None
    device: int | None = None
    backend: str | None = None
    memory_budget: int | None = None
    threads: int | None = None
    drafts: int | None = None
    draft_head: str | None = None
    step_target_ms: float | None = None
    max_queue: int | None = None
    max_queue_client: int | None = None
    host_cache: int | None = None
    state_dir: str | None = None
    state_bytes: int | None = None
    script: tuple[ScriptRule, ...] | None = None

    def said(self) -> dict[str, Any]:
        """The options that were given."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


class Engine:
    """A handle on the shared engine of a model. Every method may be called from any thread.

    Args:
        model: path of a GGUF file, or a name (`qwen3.8-27b`, `openjet-tiny`); None is
            OPENJET_MODEL, else qwen3.8-27b. Never downloads.
        agents: conversations that run at once (1-16; OPENJET_AGENTS, default 4); more wait.
        context: positions one conversation may use (OPENJET_CONTEXT; default the largest that
            memory allows, at most the file's).
        kv: KV cache format, "q8_0" (default), "f16" or "f32".
        device: CUDA device index (default 0).
        backend: "auto" (default, OPENJET_BACKEND), "cpu", "cuda" or "scripted" (tests).
        memory_budget: bytes for weights, states and pool together.
        threads: CPU threads (default one per core).
        drafts: draft tokens a step, 0-8 (default 2); they change speed, never tokens.
        draft_head: a file of token ids, that MTP drafts are chosen from instead of the default.
        step_target_ms: how long a step that reads somebody's prompt beside others' decoding may
            take (default 2.5 times a step that only decodes). One token of it is always read.
        max_queue, max_queue_client: requests that may wait (64), and of one client (16).
        host_cache: bytes of host memory for idle conversations that the pool has no room for
            (OPENJET_HOST_CACHE; default a quarter of what is free, at most 8 GB); 0 for none.
        state_dir: folder where conversations go from there, and where close() writes them, so that
            the next engine of the same model goes on with them (OPENJET_STATE_DIR; default none).
            It is made if needed, readable by its owner only, and belongs to one engine at a time.
        state_bytes: bytes of its files, at most (default 32 GiB).
        script: rules of the scripted backend.

    Raises ModelNotFoundError, ModelFileError, BackendUnavailableError, DeviceBusyError,
    OutOfMemoryError; InvalidRequestError for an option that is out of range or differs from what
    the model is already open with in this process.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        agents: int | None = None,
        context: int | None = None,
        kv: str | None = None,
        device: int | None = None,
        backend: str | None = None,
        memory_budget: int | None = None,
        threads: int | None = None,
        drafts: int | None = None,
        draft_head: str | os.PathLike[str] | None = None,
        step_target_ms: float | None = None,
        max_queue: int | None = None,
        max_queue_client: int | None = None,
        host_cache: int | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        state_bytes: int | None = None,
        script: Sequence[ScriptRule] | None = None,
    ) -> None:
        options = EngineOptions(
            agents=agents,
            context=context,
            kv=kv,
            device=device,
            backend=backend,
            memory_budget=memory_budget,
            threads=threads,
            drafts=drafts,
            draft_head=None if draft_head is None else os.path.abspath(draft_head),
            step_target_ms=step_target_ms,
            max_queue=max_queue,
            max_queue_client=max_queue_client,
            host_cache=host_cache,
            state_dir=None if state_dir is None else os.path.abspath(state_dir),
            state_bytes=state_bytes,
            script=None if script is None else tuple(script),
        )
        self.model_name, path = models.resolve(model)
        self._shared: _Shared | None = _registry().acquire(path, options)

    @property
    def path(self) -> Path:
        """The model file."""
        return self._open().path

    @property
    def context(self) -> int:
        """Positions one conversation may use."""
        return self._open().plan.context

    @property
    def agents(self) -> int:
        """Conversations that run at once; more wait."""
        return int(self._open().options.agents or defaults.AGENTS)

    @property
    def backend(self) -> Backend:
        """What computes: "cpu", "cuda" or "scripted"."""
        return self._open().backend

    @property
    def memory(self) -> MemoryPlan:
        """How memory was shared out."""
        return self._open().plan

    @property
    def format(self) -> ChatFormat:
        """The model's tokenizer and chat template."""
        return self._open().format

    def chat(self, request: ChatRequest) -> ChatStream:
        """Start one turn; iterate the stream, or take its `result()`.

        Renders, tokenises and queues before it returns, so that ContextOverflowError,
        EngineBusyError and InvalidRequestError are raised here and not in the stream.
        """
        shared = self._open()
        core = shared.core
        return shared.format.start(request, core.submit, COUNTED_CONTEXTS * core.context)

    async def achat(self, request: ChatRequest) -> ChatStream:
        """`chat` without blocking the event loop. Cancelled, it leaves no turn behind."""
        starting = asyncio.ensure_future(asyncio.to_thread(self.chat, request))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_cancel_started)
            raise

    def generate(self, request: TokenRequest) -> Generation:
        """Continue token ids; the level below messages."""
        return self._open().core.submit(request)

    def count_tokens(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """Tokens of the prompt these messages and tools make, generation prompt included."""
        from openjet_provider.chat.types import ChatRequest

        request = ChatRequest(messages=messages, tools=tools)
        return len(self._open().format.prompt(request).tokens)

    def tokenize(self, text: str) -> list[int]:
        """The model's token ids of plain text."""
        return list(self._open().format.tokenizer.encode(text))

    def stats(self) -> EngineStats:
        """Counters of the shared engine."""
        return self._open().core.stats()

    @property
    def drafts(self) -> int:
        """Draft tokens a step, at most."""
        return int(self._open().options.drafts or 0)

    @property
    def state_dir(self) -> str | None:
        """Where conversations are saved; None if they are not."""
        return self._open().options.state_dir

    def save(self, tokens: Sequence[int], filename: str) -> SavedFile:
        """Write what is stored of the conversation that `tokens` are to a file of `state_dir`.

        filename: without folders; an older file of that name is replaced at once. Raises
        InvalidRequestError for a name that is not possible, without a state_dir, when nothing is
        stored and when the folder cannot be written, OutOfMemoryError when the disk or
        `state_bytes` leave no room.
        """
        return self._open().core.save(tokens, filename)

    def restore(self, filename: str) -> SavedFile:
        """Store what `save` wrote; prompts that begin with its tokens go on from there.

        Raises InvalidRequestError for a file that is not there, damaged, or another model's.
        """
        return self._open().core.restore(filename)

    def erase(self, tokens: Sequence[int]) -> int:
        """Forget the conversation that `tokens` are, in memory and in the engine's own files, but
        not what several conversations begin with. Returns how many of its tokens were stored."""
        return self._open().core.erase(tokens)

    def announce(self, url: str) -> None:
        """Tell processes that find the device taken where they may attach to this engine."""
        shared = self._open()
        if shared.lock is not None:
            shared.lock.describe(shared.path.name, url)

    def close(self) -> None:
        """Give this handle back. The last one cancels what runs and frees the model."""
        _registry().release(self)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Engine {self.model_name}{' (closed)' if self._shared is None else ''}>"

    def _open(self) -> _Shared:
        if self._shared is None:
            raise EngineClosedError(f"this Engine of {self.model_name} is closed; open a new one")
        return self._shared


def _cancel_started(starting: asyncio.Future[ChatStream]) -> None:
    """End a turn whose caller went away while a thread was starting it."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()


def resolve_options(asked: EngineOptions) -> EngineOptions:
    """`asked` with the environment's values and the defaults filled in, and every range checked.

    Raises InvalidRequestError for a value that is out of range.
    """
    max_queue = _whole("max_queue", asked.max_queue, 1, 100_000, defaults.QUEUE)
    assert max_queue is not None
    client_default = min(defaults.QUEUE_CLIENT, max_queue)
    return EngineOptions(
        agents=_whole("agents", asked.agents, 1, 16, defaults.AGENTS, "OPENJET_AGENTS"),
        context=_whole("context", asked.context, 1, 1 << 30, None, "OPENJET_CONTEXT"),
        kv=_one_of("kv", asked.kv or defaults.KV, ("q8_0", "f16", "f32")),
        device=_whole("device", asked.device, 0, 255, 0),
        backend=asked.backend or os.environ.get("OPENJET_BACKEND") or defaults.BACKEND,
        memory_budget=_whole("memory_budget", asked.memory_budget, 1, 1 << 60, None),
        threads=_whole("threads", asked.threads, 0, 256, 0),
        drafts=_whole("drafts", asked.drafts, 0, 8, defaults.DRAFTS),
        draft_head=asked.draft_head,
        step_target_ms=_milliseconds("step_target_ms", asked.step_target_ms),
        max_queue=max_queue,
        max_queue_client=_whole(
            "max_queue_client", asked.max_queue_client, 1, max_queue, client_default
        ),
        host_cache=_whole("host_cache", asked.host_cache, 0, 1 << 60, None, "OPENJET_HOST_CACHE"),
        state_dir=asked.state_dir or _environment_path("OPENJET_STATE_DIR"),
        state_bytes=_whole("state_bytes", asked.state_bytes, 0, 1 << 60, defaults.STATE_BYTES),
        script=asked.script,
    )


def _environment_path(variable: str) -> str | None:
    text = os.environ.get(variable)
    return os.path.abspath(text) if text else None


def _whole(
    name: str, value: int | None, low: int, high: int, default: int | None, variable: str = ""
) -> int | None:
    """A whole number in [low, high]: what was given, else the environment's, else the default."""
    if value is None and variable and (text := os.environ.get(variable)):
        name = variable
        try:
            value = int(text)
        except ValueError:
            raise InvalidRequestError(f"{variable}={text!r} is not a whole number") from None
    if value is None:
        return default
    if not low <= value <= high:
        raise InvalidRequestError(f"{name}={value} is out of range: give {low} to {high}")
    return value


def _milliseconds(name: str, value: float | None) -> float | None:
    if value is not None and not 0.001 <= value <= 1e6:
        raise InvalidRequestError(f"{name}={value} is out of range: give 0.001 to 1000000")
    return value


def _token_ids(path: Path) -> list[int]:
    """The ids in a file of them, ascending."""
    try:
        ids = sorted({int(word) for word in path.read_text().split()})
    except (OSError, ValueError) as error:
        raise InvalidRequestError(f"draft_head={str(path)!r} cannot be used: {error}") from None
    if not ids or not 0 <= ids[0] <= ids[-1] < 1 << 31:
        raise InvalidRequestError(f"draft_head={str(path)!r} holds no list of token ids")
    return ids


def _one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise InvalidRequestError(f"{name}={value!r} is unknown: use {', '.join(allowed)}")
    return value


class _Shared:
    """A core with everything opened around it, and how many handles use it."""

    def __init__(self, path: Path, options: EngineOptions) -> None:
        self.path = path
        self.handles = 0
        self._pid = os.getpid()
        self.options = resolve_options(options)
        self.backend = choose_backend(str(self.options.backend), path.stat().st_size)
        self.lock: DeviceLock | None = None
        native = load("cuda" if self.backend == "cuda" else "cpu")
        if self.backend == "cuda" and (warning := _build_info.unproven_cuda()):
            log.warning("%s", warning)
        with contextlib.ExitStack() as undo:
            if self.backend == "cuda":
                self.lock = DeviceLock(self.options.device or 0, path.name)
                undo.callback(self.lock.release)
            model = Model(native, path)
            undo.callback(model.close)
            keep: list[Any] = []  # arrays that must live until the engine is open
            packed = self._pack(model, keep)
            self.format = _chat_format(model)
            keep += self._pack_script(packed, native)
            if self.options.state_dir:
                keep.append(native.ffi.new("char[]", os.fsencode(self.options.state_dir)))
                packed.state_dir = keep[-1]
            self.core = Core(model, packed)
            del keep
            undo.pop_all()
        if self.options.state_dir:
            self.format.load_turns(Path(self.options.state_dir))
        log.info("%s on %s: %s", path.name, self.backend, self.plan)

    def close(self) -> None:
        # The folder is ours until the core is closed, which may take as long as a supervisor waits.
        if self.options.state_dir and self._pid == os.getpid():
            self.format.save_turns(Path(self.options.state_dir))
        self.core.close()
        if self.lock is not None:
            self.lock.release()

    def check_same(self, asked: EngineOptions) -> None:
        """Raise if `asked` names an option with another value than the one in use."""
        for name, value in asked.said().items():
            used = self.backend if name == "backend" else getattr(self.options, name)
            if name == "context" and used is None:
                used = self.plan.context
            if value != used and (name, value) != ("backend", "auto"):
                raise InvalidRequestError(
                    f"{self.path.name} is already open in this process with {name}={used!r}, now"
                    f" {name}={value!r} was asked for; use the same value or close the other"
                    " Engine first"
                )

    def _pack(self, model: Model, keep: list[Any]) -> Any:
        """The oj_engine_options of these options, with memory planned."""
        lib, options = model.native.lib, self.options
        packed = model.native.ffi.new("oj_engine_options *")
        packed.draft, packed.max_queue = options.drafts, options.max_queue
        packed.max_queue_client = options.max_queue_client
        packed.step_target = defaults.STEP_TARGET
        packed.step_target_us = int((options.step_target_ms or 0) * 1000)
        packed.min_prompt_rows = defaults.MIN_PROMPT_ROWS
        backend = model.native.ffi.addressof(packed, "backend")
        backend.kind = getattr(lib, f"OJ_BACKEND_{self.backend.upper()}")
        backend.kv_codec = getattr(lib, f"OJ_KV_{str(options.kv).upper()}")
        backend.device, backend.threads = options.device, options.threads
        backend.n_slots = options.agents
        backend.mtp = bool(model.info.has_mtp and options.drafts)
        if model.info.n_vocab >= 2 * defaults.DRAFT_HEAD_ROWS:
            backend.draft_head_rows = defaults.DRAFT_HEAD_ROWS
        if options.draft_head is not None:
            ids = _token_ids(Path(options.draft_head))
            keep.append(model.native.ffi.new("int32_t[]", ids))
            backend.draft_head_ids, backend.n_draft_head_ids = keep[-1], len(ids)
        if options.drafts and not model.info.has_mtp:
            log.warning("%s has no MTP block: drafts come from prompt lookup only", self.path.name)
        self.plan = plan_memory(
            model,
            backend,
            context=options.context,
            memory_budget=options.memory_budget,
            available=available_memory(),
            host_cache=options.host_cache,
        )
        packed.context = self.plan.context
        packed.host_bytes = self.plan.host_cache_bytes
        packed.state_bytes = options.state_bytes
        return packed

    def _pack_script(self, packed: Any, native: Native) -> list[Any]:
        """Point `packed` at the script; the returned arrays must live until the engine is open."""
        rules = self.options.script or ()
        if rules and self.backend != "scripted":
            raise InvalidRequestError('script= needs backend="scripted"')
        script = native.ffi.new("oj_script_rule[]", len(rules))
        keep = [script]
        for rule, out in zip(rules, script, strict=True):
            for name, text in (("match", rule.match), ("reply", rule.reply)):
                ids = list(self.format.tokenizer.encode(text, parse_special=True))
                keep.append(native.ffi.new("int32_t[]", ids))
                setattr(out, name, keep[-1])
                setattr(out, f"n_{name}", len(ids))
            out.per_step = rule.per_step
            out.delay_us = int(rule.delay_s * 1e6)
            out.fault_after = -1 if rule.fault_after is None else rule.fault_after
        packed.script, packed.n_script = script, len(rules)
        return keep


def _chat_format(model: Model) -> ChatFormat:
    from openjet_provider.chat.session import ChatFormat

    return ChatFormat.of_model(model)


class _Registry:
    """The cores of this process by file, device and script. The one global of the package."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = threading.Condition(self._lock)
        self._n_closing = 0
        self._cores: dict[tuple[Path, int, tuple[ScriptRule, ...] | None], _Shared] = {}

    def acquire(self, path: Path, options: EngineOptions) -> _Shared:
        key = (path, options.device or 0, options.script)
        with self._lock:
            if key not in self._cores:  # what closes may still hold the device or the folder
                self._closed.wait_for(lambda: self._n_closing == 0, _CLOSE_S)
            shared = self._cores.get(key)
            if shared is None:
                shared = self._cores[key] = _Shared(path, options)
            shared.check_same(options)
            shared.handles += 1
            return shared

    def release(self, handle: Engine) -> None:
        with self._lock:
            shared, handle._shared = handle._shared, None
            if shared is None:
                return
            shared.handles -= 1
            if shared.handles > 0:
                return
            self._cores = {key: core for key, core in self._cores.items() if core is not shared}
            self._n_closing += 1
        self._close(shared)

    def close_all(self) -> None:
        with self._lock:
            cores, self._cores = list(self._cores.values()), {}
            self._n_closing += len(cores)
        for shared in cores:
            self._close(shared)

    def _close(self, shared: _Shared) -> None:
        try:
            shared.close()
        finally:
            with self._lock:
                self._n_closing -= 1
                self._closed.notify_all()


# By process: a forked child gets its own, since the locks of its parent's may be held for ever.
_registries: dict[int, _Registry] = {}


def _registry() -> _Registry:
    """This process's, made at first use."""
    registry = _registries.get(os.getpid())
    if registry is None:
        made = _Registry()
        registry = _registries.setdefault(os.getpid(), made)  # atomic: threads may race to here
        if registry is made:
            atexit.register(_close_at_exit)
    return registry


def close_all() -> None:
    """Close every engine of this process, whoever still holds a handle on it."""
    _registry().close_all()


def _close_at_exit() -> None:
    """A forked child runs its parent's exit handlers too: it closes what is its own."""
    if registry := _registries.get(os.getpid()):
        registry.close_all()

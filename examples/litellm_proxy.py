"""LiteLLM's proxy over two OpenJet servers: the way past one GPU or one machine.

    pip install 'openjet-provider[server]' 'litellm[proxy]'
    python examples/litellm_proxy.py                        # openjet-tiny twice, on the CPU
    python examples/litellm_proxy.py --model qwen3.8-27b    # needs two GPUs: see --device below

A conversation must come back to the server that has read it: its prefix is there and nowhere else.
So every conversation names itself (`x-litellm-session-id`) and the proxy keeps it where it began
(`session_affinity`). Servers on other machines are named in `api_base`; here two are started, each
with what `openjet serve` would be told by hand (on two GPUs: `--device 0` and `--device 1`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from openjet_provider.local_server import local_server

CONFIG = """\
model_list:
  - model_name: crew
    litellm_params: {{model: hosted_vllm/{model}, api_base: "{first}/v1", api_key: any}}
  - model_name: crew
    litellm_params: {{model: hosted_vllm/{model}, api_base: "{second}/v1", api_key: any}}
router_settings:
  optional_pre_call_checks: [session_affinity]
general_settings:
  master_key: os.environ/LITELLM_MASTER_KEY
"""
START_SECONDS = 300  # its imports alone take a while
CONVERSATIONS = 4
TURNS = ("Hello!", "Tell me the capital of France.", "What is 3 + 4?")


@contextlib.contextmanager
def proxy(config: str, key: str) -> Iterator[str]:
    """The URL of a LiteLLM proxy with this configuration."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {
        **os.environ,
        "LITELLM_MASTER_KEY": key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no look-up of prices
    }
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "config.yaml", Path(folder) / "log"
        file.write_text(config)
        program = str(Path(sys.executable).with_name("litellm"))
        command = [program, "--config", str(file), "--host", "127.0.0.1", "--port", port]
        with log.open("w") as output:
            process = subprocess.Popen(
                command, env=environment, cwd=folder, stdout=output, stderr=output
            )
        url = f"http://127.0.0.1:{port}"
        try:
            wait_for(url, process, log)
            yield url
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health/liveliness", timeout=5).status_code == 200:
                return
        time.sleep(0.3)
    sys.exit(f"the proxy did not start:\n{log.read_text()[-2000:]}")


def converse(url: str, key: str, name: str) -> tuple[set[str], int]:
    """The servers that answered a conversation of several turns, and its cached tokens."""
    headers = {"authorization": f"Bearer {key}", "x-litellm-session-id": name}
    messages: list[dict[str, Any]] = []
    places, cached = set(), 0
    for text in TURNS:
        messages.append({"role": "user", "content": text})
        body = {"model": "crew", "messages": messages, "temperature": 0, "max_tokens": 256}
        answer = httpx.post(f"{url}/v1/chat/completions", headers=headers, json=body, timeout=300)
        answer.raise_for_status()
        said = answer.json()
        messages.append({"role": "assistant", "content": said["choices"][0]["message"]["content"]})
        places.add(answer.headers["x-litellm-model-api-base"])
        cached += said["usage"]["prompt_tokens_details"]["cached_tokens"]
    return places, cached


def main() -> None:
    parser = argparse.ArgumentParser(description="A LiteLLM proxy over two servers.")
    parser.add_argument("--model", default="openjet-tiny", help="a name or a GGUF file")
    parser.add_argument("--device", nargs=2, metavar="N", help="GPUs of the two servers")
    options = parser.parse_args()
    arguments = [["--device", number] for number in options.device or ()] or [[], []]
    key = f"sk-{secrets.token_urlsafe(24)}"
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(local_server(options.model, *each, attach=False))
            for each in arguments
        ]
        first, second = (server.url for server in servers)
        config = CONFIG.format(model=servers[0].model, first=first, second=second)
        url = stack.enter_context(proxy(config, key))
        names = [f"conversation-{number}" for number in range(CONVERSATIONS)]
        with ThreadPoolExecutor(CONVERSATIONS) as pool:
            found = list(pool.map(lambda name: converse(url, key, name), names))
        for name, (places, cached) in zip(names, found, strict=True):
            print(f"{name}: {', '.join(sorted(places))} ({cached} cached)")
        for server in servers:
            print(f"{server.url}: {server.stats().summary()}")


if __name__ == "__main__":
    main()

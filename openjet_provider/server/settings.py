"""What an operator decides about a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Times in seconds, sizes in bytes.

    aliases: more names the model answers to; shell patterns (`claude-*`).
    api_keys: any of them is accepted; none: no key is asked for.
    origins: web pages (`http://host:port`, or `*`) whose scripts may use the server.
    keep_billing_header: system prompts keep the line of changing hashes that a client puts first.
    private: stats show neither tasks nor what is written.
    request_timeout: the longest a request may run; requests may ask for less.
    max_requests: open requests of all kinds, the queued ones included.
    read_timeout, write_timeout: how long a client may take to send its body, or to take a piece of
        its answer.
    keep_alive: the longest silence in a stream.
    interval: for how long a stream collects tokens that come less than half of it apart: an event
        for each would cost more.
    drain: how long running requests may go on after a stop was asked for.
    """

    aliases: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    keep_billing_header: bool = False
    private: bool = False
    request_timeout: float = 3600.0
    max_body: int = 32 << 20
    max_requests: int = 256
    read_timeout: float = 60.0
    write_timeout: float = 60.0
    keep_alive: float = 10.0
    interval: float = 0.02
    drain: float = 10.0

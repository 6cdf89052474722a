"""What the parser lets through: thinking and visible text, each cleaned of white space around."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class _Channel:
    """Text in pieces, handed out once as deltas."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._taken = 0
        self._held = ""  # white space that counts only if more text follows
        self.visible = False  # there is text in this segment
        self.after_call = False  # there is none yet, and a call came before it

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def take(self) -> str:
        new = "".join(self._pieces[self._taken :])
        self._taken = len(self._pieces)
        return new

    def _show(self, text: str) -> None:
        text = self._held + text
        shown = text.rstrip()
        self._held = text[len(shown) :]
        if shown:
            self._pieces.append(shown)
            self.visible, self.after_call = True, False


class Reasoning(_Channel):
    """Thinking, without the white space around it."""

    def add(self, text: str) -> None:
        self._show(text if self.visible else text.lstrip())


class Content(_Channel):
    """Visible text, up to a stop string. Line breaks at the start of the answer and all white
    space behind a call are dropped; white space before a call counts only if text follows it."""

    def __init__(self, stop: Sequence[str]) -> None:
        super().__init__()
        self.stop_string: str | None = None  # the one that was found
        self._leading = True
        self._stop = [word for word in stop if word]
        self._unmatched = ""  # may be the start of a stop string
        self._line = ""  # how the current line begins
        self._in_code_block = False

    @property
    def stopped(self) -> bool:
        return self.stop_string is not None

    def new_segment(self, *, after_call: bool = False) -> None:
        """Behind the thinking or a call."""
        self.flush()
        self.visible, self.after_call, self._leading = False, after_call, True
        self._line = ""

    def add(self, text: str) -> None:
        if self._leading:
            text = text.lstrip() if self.after_call else text.lstrip("\r\n")
        if not text or self.stopped:
            return
        self._leading = False
        self._follow_lines(text)
        self._show(self._before_stop(self._unmatched + text) if self._stop else text)

    def flush(self) -> None:
        """What follows is no text: no stop string can reach across it."""
        self._show(self._unmatched)
        self._unmatched = ""

    def finish(self) -> None:
        self.flush()
        if self.visible and self._held:
            self._pieces.append(self._held)
            self._held = ""

    @property
    def at_line_start(self) -> bool:
        """Of a line outside a code block."""
        return not self._line and not self._in_code_block

    def _before_stop(self, text: str) -> str:
        """`text` up to the stop string that is complete first, or without what may become one."""
        found = [(at + len(word), at, word) for word in self._stop if (at := text.find(word)) >= 0]
        if found:
            _, at, self.stop_string = min(found)
            self._unmatched = ""
            return text[:at]
        keep = held_suffix(text, self._stop)
        self._unmatched = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _follow_lines(self, text: str) -> None:
        *complete, rest = (self._line + text).split("\n")
        fences = sum(line.lstrip().startswith("```") for line in complete)
        self._in_code_block ^= bool(fences % 2)
        self._line = rest.lstrip()[:3]


def held_suffix(text: str, words: Iterable[str]) -> int:
    """Length of the longest end of `text` that may become one of the words."""
    longest = 0
    for word in words:
        for size in range(min(len(word) - 1, len(text)), longest, -1):
            if text.endswith(word[:size]):
                longest = size
                break
    return longest

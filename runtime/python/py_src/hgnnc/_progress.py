"""Shows the progress of training: a line in a terminal, a bar in a notebook, nothing elsewhere."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

_EVERY = 0.1
"""Least seconds between two updates."""


def _notebook() -> Any:
    """`IPython.display` in a notebook, else None."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    import IPython.display

    return IPython.display


class Progress:
    """The progress of one run."""

    def __init__(self, shown: bool) -> None:
        self._display = _notebook() if shown else None
        self._handle: Any = None
        self._terminal = shown and self._display is None and sys.stderr is not None and sys.stderr.isatty()
        self._last, self._width, self._state = 0.0, 0, (0.0, "")

    def update(self, done: float, epochs: int, text: str) -> None:
        """`done` of `epochs` epochs are done."""
        self._state = (done / max(epochs, 1), f"epoch {int(done)}/{epochs}  {text}")
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            self._show()

    def _show(self) -> None:
        share, text = self._state
        if self._display is not None:
            bar = self._display.HTML(
                f"<progress value='{share:.4f}' max='1' style='width:20em'></progress> <code>{html.escape(text)}</code>"
            )
            if self._handle is None:
                self._handle = self._display.display(bar, display_id=True)
            else:
                self._handle.update(bar)
        elif self._terminal:
            full = int(24 * share)
            line = f"[{'█' * full}{'·' * (24 - full)}] {text}"
            sys.stderr.write("\r" + line.ljust(self._width))
            sys.stderr.flush()
            self._width = len(line)

    def finish(self) -> None:
        """Shows the last state, and ends the line."""
        if self._state[1]:
            self._show()
            if self._terminal:
                sys.stderr.write("\n")
                sys.stderr.flush()

"""Exceptions and warnings."""

from __future__ import annotations

import html
import sys
import warnings
from dataclasses import dataclass, field


class HgnncError(Exception):
    """Base of all errors of this package."""


class InputError(HgnncError, ValueError):
    """An input is wrong, or inputs do not fit together."""


class DataError(InputError):
    """A dataset has faults. The text lists them, and names the file or the key of each."""


class MachineError(HgnncError, RuntimeError):
    """The machine could not: no such device, too little memory, a file that cannot be written."""


class HgnncWarning(UserWarning):
    """Something that is probably not as intended."""


def warn(text: str) -> None:
    """A warning at the line that called this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "hgnnc":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, HgnncWarning, stacklevel=level)


@dataclass(frozen=True)
class Diagnostic:
    """One problem of a model, where it is, and how to fix it."""

    severity: str
    """`error` or `warning`."""
    code: str
    """Such as `E0401`; `hgnnc explain E0401` explains it."""
    message: str
    span: tuple[int, int, int, int] | None = None
    """Line and column where it begins and where it ends, counted from 1; None if it is not in the text."""
    label: str = ""
    notes: tuple[str, ...] = field(default=())
    help: tuple[str, ...] = field(default=())

    @property
    def line(self) -> int | None:
        """The line where it begins."""
        return self.span[0] if self.span else None

    @property
    def column(self) -> int | None:
        """The column where it begins."""
        return self.span[1] if self.span else None


RawDiagnostic = tuple[str, str, str, "list[int] | None", str, "list[str]", "list[str]"]


def diagnostics(raw: list[RawDiagnostic]) -> list[Diagnostic]:
    """Diagnostics of what the native part returns."""
    found = []
    for severity, code, message, span, label, notes, help_ in raw:
        place = (span[0], span[1], span[2], span[3]) if span else None
        found.append(Diagnostic(severity, code, message, place, label, tuple(notes), tuple(help_)))
    return found


class ModelError(HgnncError):
    """A model has errors, or does not fit the dataset.

    `str` is what the command prints; `diagnostics` has the same as values.
    """

    diagnostics: list[Diagnostic]

    def __init__(self, text: str, coloured: str = "", raw: list[RawDiagnostic] | None = None) -> None:
        super().__init__(text)
        self._coloured = coloured or text
        self.diagnostics = diagnostics(raw or [])

    def __str__(self) -> str:
        return "\n" + str(self.args[0]).rstrip()

    def _render_traceback_(self) -> list[str]:
        # IPython shows this in place of a traceback: the mistake is in the model, not in the Python code.
        return self._coloured.rstrip().splitlines()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self.args[0]))}</pre>"

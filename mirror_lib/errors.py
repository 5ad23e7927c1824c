"""Every error this product raises on purpose: what, where, and what to do, with the exit code a command ends with."""

from __future__ import annotations

from typing import Optional

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3


class MirrorError(Exception):
    """A failure explained in one sentence. `hint` says what to do about it."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(MirrorError):
    """The file or the command line is wrong; nothing was started."""

    exit_code = EXIT_USAGE


class ClusterError(MirrorError):
    """A cluster could not be reached or refused a request."""


class BatchError(MirrorError):
    """A record batch is corrupt or of a kind that cannot be copied."""


class CustomClassError(MirrorError):
    """A class that the user brought (a policy or a filter) raised, or answered with what cannot be used."""


class StateError(MirrorError):
    """A table under `state:` could not be read or written."""


class RefusedError(MirrorError):
    """Going on could lose or double records; nothing more was written."""

    exit_code = EXIT_REFUSED


class FencedError(RefusedError):
    """Another driver of the same flow took over a lane."""


def cause_of(error: BaseException) -> str:
    """What a library said, its first line; the error's class where it said nothing.

    A Java exception that came through Py4J says it in its innermost cause: the rest only says that a call failed.
    """
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    text = str(error if java is None else java.toString())
    return text.strip().split("\n")[0] or type(error).__name__

"""All errors that the mirror raises on purpose: what happened, where, what to do, and the command's exit code."""

from __future__ import annotations

import re
from typing import Iterable, List, Optional

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_STOPPED = 143
# The most severe first: see `worst`.
_BY_WEIGHT = (EXIT_USAGE, EXIT_REFUSED, EXIT_FAILED, EXIT_STOPPED, EXIT_OK)

_TRACE = "Traceback (most recent call last):"
_JAVA_STACK = re.compile(r"^\s+at [\w$.]+\S*\(|^(?:JVM|Driver) stacktrace:", re.MULTILINE)

_JAVA_LINE = re.compile(r"^\s+at [\w$.]+\S*\(.*$", re.MULTILINE)


class MirrorError(Exception):
    """A failure explained in one sentence. `hint` says what to do about it. `code` has an entry in `mirror_lib.codes`:
    the class gives a default, a raise may give a more specific one."""

    exit_code = EXIT_FAILED
    code = "MIR-500"

    def __init__(self, message: str, hint: Optional[str] = None, *, code: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    @property
    def coded(self) -> str:
        return f"{self.code}: {self}"

    @property
    def line(self) -> str:
        """The error as printed on standard error. A refusal also names the command that explains it."""
        more = f"; mirror help {self.code} explains it" if self.exit_code == EXIT_REFUSED else ""
        return self.coded + more


class ConfigError(MirrorError):
    """The file or the command line is wrong; nothing was started."""

    exit_code = EXIT_USAGE
    code = "MIR-101"


class ClusterError(MirrorError):
    """A cluster could not be reached or refused a request."""

    code = "MIR-201"


class LoginError(ClusterError):
    """A cluster refused the mirror's login, its certificate, or its kind of listener."""

    code = "MIR-202"


class SparkEndedError(MirrorError):
    """Java, or the Spark context in it, is gone: Spark answers no further call."""

    code = "MIR-501"


class StalledError(MirrorError):
    """Spark gave the ledger's commit no task slot for minutes. The copy is exact, and the next run resumes."""

    code = "MIR-502"


class BatchError(MirrorError):
    """A record batch is corrupt or of a kind that cannot be copied."""

    code = "MIR-204"


class CustomClassError(MirrorError):
    """A class of the user's (a policy or a filter) raised an error, or returned an unusable value."""

    code = "MIR-102"


class StateError(MirrorError):
    """A table under `state:` could not be read or written."""

    code = "MIR-401"


class ConflictError(StateError):
    """Delta refused a change because another process changed the same table at that moment. Nothing was written."""

    code = "MIR-402"


class RefusedError(MirrorError):
    """Continuing could lose or duplicate records; nothing more was written."""

    exit_code = EXIT_REFUSED
    code = "MIR-300"


class VanishedError(RefusedError):
    """A table under `state:` that this process has used is gone. No record on the target is lost."""

    code = "MIR-334"


class FencedError(RefusedError):
    """Another driver of the same flow fenced a lane."""

    code = "MIR-302"


def worst(exit_codes: Iterable[int]) -> int:
    """The exit code of a command whose flows ended with `exit_codes`: the one that needs the most from the operator.

    2 before 3 before 1 before 143 before 0. 2: a file must be corrected, or no run succeeds. 3: an operator must decide
    about data. 1: a later run may succeed. 143: a later run resumes. Without any flow it is 0.
    """
    return min(exit_codes, key=_BY_WEIGHT.index, default=EXIT_OK)


def exit_code_of(errors: Iterable[MirrorError], interrupted: bool = False) -> int:
    return worst([*(each.exit_code for each in errors), EXIT_STOPPED if interrupted else EXIT_OK])


def cause_of(error: BaseException) -> str:
    """The first line of a library's message; the error's class if it has none.

    For a Java exception that came through Py4J it is the message of the innermost cause: the outer ones only say that a
    call failed. If a Python process of Spark's failed, it is that process's error.
    """
    said = _said(error)
    raised = [sentence for sentence in map(_raised, said) if sentence]
    return raised[-1] if raised else said[-1].strip().split("\n")[0] or type(error).__name__


def messages_of(error: BaseException) -> List[str]:
    """A library's messages, cause by cause, the innermost last, without the lines of Java's traces."""
    return [_JAVA_LINE.sub("", text) for text in _said(error)]


def _said(error: BaseException) -> List[str]:
    """The messages of Java's exceptions, the innermost last, or the message of a Python exception."""
    java = getattr(error, "java_exception", None)
    said = []
    while java is not None:
        said.append(str(java.toString()))
        java = java.getCause()
    return said or [str(error)]


def _raised(text: str) -> Optional[str]:
    """The message of the exception in the last Python trace of `text`, if one precedes Java's own stack."""
    trace = text.partition(_TRACE)[2]
    java = _JAVA_STACK.search(trace)
    last = (trace[: java.start()] if java else trace).rpartition(_TRACE)[2]
    # Lines of the trace are indented. Only the first line of the message is used: the next lines are further sentences.
    line = next((line for line in last.splitlines() if line.strip() and not line[0].isspace()), "")
    name, colon, sentence = line.partition(": ")
    module, _, short = name.rpartition(".")
    return sentence if sentence and module.split(".")[0] == "mirror_lib" else f"{short}{colon}{sentence}" or None

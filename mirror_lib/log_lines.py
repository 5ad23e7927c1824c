"""Formats the lines on standard error: time, level, flow, code and message, as text or, with `MIRROR_LOG_FORMAT=json`,
as one JSON object a line with the same fields.

The flow of a line is that of the logging thread (`in_flow`), or the one with which the message begins.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, TypeVar

from mirror_lib.errors import ConfigError, MirrorError
from mirror_lib.text import as_json, one_entry, wrapped

# The environment variable that chooses the form of the lines.
FORMAT = "MIRROR_LOG_FORMAT"
TEXT, JSON = "text", "json"

_flow: ContextVar[Optional[str]] = ContextVar("flow", default=None)
_BEGINS_WITH_FLOW = re.compile(r"[^\s:;,>]+->[^\s:;,>]+")
Result = TypeVar("Result")


def asks_for_json(environ: Mapping[str, str]) -> bool:
    """Whether the environment selects JSON. False for an unknown format."""
    return environ.get(FORMAT, "").strip().lower() == JSON


def wants_json(environ: Mapping[str, str]) -> bool:
    """Like `asks_for_json`, but raises `ConfigError` for an unknown format."""
    if environ.get(FORMAT, "").strip().lower() not in ("", TEXT, JSON):
        raise ConfigError(f"{FORMAT}={environ[FORMAT]} is no format: take one of {TEXT}, {JSON}")
    return asks_for_json(environ)


# In texts of commands that read a configuration: the files of this process, once they are given.
_CONFIG = re.compile(r"(\bmirror(?: [a-z]+)+ )CONFIG(?![\w-])")
_files = "CONFIG"


def name_files(files: Sequence[str]) -> None:
    """From now on `with_files` puts these configuration files into commands."""
    global _files
    _files = " ".join(map(shlex.quote, files)) or "CONFIG"


def with_files(text: str) -> str:
    """`text` with the user's files in each command that it names: `mirror plan CONFIG` as `mirror plan mirror.yaml`."""
    return _CONFIG.sub(lambda found: found.group(1) + _files, text)


@contextmanager
def in_flow(name: Optional[str]) -> Iterator[None]:
    """During the block, lines of this thread belong to the flow `name`."""
    before = _flow.set(name)
    try:
        yield
    finally:
        _flow.reset(before)


def of_this_flow(call: Callable[..., Result]) -> Callable[..., Result]:
    """Wrap `call` for another thread: its lines belong to the flow of the thread that wraps it."""
    name = _flow.get()

    def called(*given: Any, **named: Any) -> Result:
        with in_flow(name):
            return call(*given, **named)

    return called


def json_line(
    level: str, message: str, code: Optional[str] = None, at: Optional[float] = None, trace: Optional[str] = None
) -> str:
    """One JSON object on one line. `at` is Unix seconds, by default the present time. `code` and `trace` are absent if
    there is none; a missing flow is null."""
    seconds = time.time() if at is None else at
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    fields: Dict[str, Optional[str]] = {
        "time": f"{stamp}.{int(seconds % 1 * 1000):03d}Z",
        "level": level,
        "flow": _flow_of(message),
        "message": message,
    }
    more = {"code": code, "trace": trace}
    return as_json({**fields, **{name: text for name, text in more.items() if text}})


def format_worker_entries() -> None:
    """Give the entries of this process their form on standard error, if it has none: a Python worker of Spark."""
    if not logging.getLogger().handlers:
        entries = logging.StreamHandler(sys.stderr)
        entries.setFormatter(EntryFormatter(asks_for_json(os.environ)))
        logging.basicConfig(handlers=[entries], level=logging.WARNING)


class EntryFormatter(logging.Formatter):
    """Formats log entries. A name that a user chose cannot forge a line or a field.

    The code is that of the first `MirrorError` among the arguments of the log call. `columns` gives the width of the
    terminal, if there is one.
    """

    def __init__(self, json_lines: bool = False, columns: Callable[[], Optional[int]] = lambda: None) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._json_lines, self._columns = json_lines, columns

    def format(self, record: logging.LogRecord) -> str:
        if not self._json_lines:
            lines = super().format(record).split("\n")
            return "\n".join(part for line in lines for part in wrapped(line, self._columns()))
        trace = self.formatException(record.exc_info) if record.exc_info else None
        return json_line(record.levelname, record.getMessage(), _code_of(record), record.created, trace)

    def formatMessage(self, record: logging.LogRecord) -> str:
        flow, code = _flow_of(record.message), _code_of(record)
        named = flow is None or record.message.startswith(flow)
        parts = [code, None if named else flow, record.message]
        record.message = one_entry(with_files(": ".join(part for part in parts if part)))
        return super().formatMessage(record)


def _flow_of(message: str) -> Optional[str]:
    begins = _BEGINS_WITH_FLOW.match(message)
    return _flow.get() or (begins.group() if begins else None)


def _code_of(record: logging.LogRecord) -> Optional[str]:
    given = record.args if isinstance(record.args, tuple) else ()
    return next((each.code for each in given if isinstance(each, MirrorError)), None)

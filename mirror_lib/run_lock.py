"""The lock that lets one process of this machine copy a flow.

The lock is per flow and machine: the kernel releases it when the holding process ends, however it ends. The table
`runs` names each driver by `this_driver`.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import socket
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional, Tuple

from mirror_lib.errors import RefusedError

log = logging.getLogger(__name__)

UNKNOWN_PROCESS = 0
STOP_RUN = "stop the run and its schedule"
STOP_OR_END = f"{STOP_RUN}, or give --take-over, which ends it"
# Under spark-submit, a driver whose JVM was killed notices that within seconds.
LEAVING_SECONDS, AGAIN_SECONDS = 8.0, 0.2
# The first PID namespace of a machine has this number (Linux, include/uapi/linux/nsfs.h).
FIRST_PID_NAMESPACE = "4026531836"


@contextmanager
def run_lock(state: str, flow: str, take_over: bool, patience: Optional[float] = None) -> Iterator[Optional[int]]:
    """Hold the lock of `flow`, whose tables are under `state`, during the block. Yields `None` if the block has the
    lock, else the id of the process that has it, or `UNKNOWN_PROCESS` if the file does not name it. Waits `patience`
    seconds for the lock, by default `LEAVING_SECONDS`: the other process may be about to end.

    `take_over` replaces another process's lock. An unusable lock file does not stop the run: the fence keeps the copy
    exact without it.
    """
    name = hashlib.sha256(f"{_folder(state)} {flow}".encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"mirror-{name}.lock"
    try:
        if take_over:
            path.unlink(missing_ok=True)
        descriptor, held = _locked(path, LEAVING_SECONDS if patience is None else patience)
    except OSError as error:
        log.debug("%s cannot be used: %s", path, error)
        yield None
        return
    try:
        if not held:
            number = os.pread(descriptor, 20, 0)
            yield int(number) if number.isdigit() else UNKNOWN_PROCESS
            return
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, b"%d" % os.getpid(), 0)
        try:
            yield None
        finally:
            if _is_at(descriptor, path):  # and not the file of a run that took over
                path.unlink()
    finally:
        os.close(descriptor)


@contextmanager
def alone(state: str, flow: str, remedy: str, take_over: bool = False) -> Iterator[None]:
    """Hold the lock of `flow` during the block. Raises `RefusedError` with `remedy` if another process has it."""
    with run_lock(state, flow, take_over) as holder:
        if holder is not None:
            raise RefusedError(f"{copied_by(holder, flow)}; nothing was changed", remedy, code="MIR-301")
        yield


def this_driver() -> str:
    """`host process 4711`, in a container `host/4026532178 process 7`: this process as the table `runs` names it."""
    return f"{_processes()} process {os.getpid()}"


def died_here(driver: Optional[str]) -> bool:
    """Whether `driver`, by its name in the table `runs`, was a process of this machine and has ended. False for another
    machine or PID namespace, whose processes are not visible here, and if a new process has its id."""
    host, _, process = (driver or "").rpartition(" process ")
    if host != _processes() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
        # An ended process is a zombie until its parent asks how it ended: in a container perhaps for ever.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:
        return True
    except OSError:  # a process of another user, or no Linux
        return False


def copied_by(process: int, flow: str) -> str:
    """`A->B: process 4711 of this machine copies it`, for the process id that `run_lock` yielded."""
    return f"{flow}: process {process or 'unknown'} of this machine copies it"


def _folder(state: str) -> str:
    """The same text for each way to write the address of a state folder. A local path is a folder of this machine."""
    scheme, colon, rest = state.partition(":")
    if not colon or "/" in scheme:
        return os.path.realpath(state)
    return os.path.realpath("/" + rest.lstrip("/")) if scheme == "file" else state.rstrip("/")


def _processes() -> str:
    """This host, and the PID namespace unless it is the machine's first: what a process id is unique in."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")[len("pid:[") : -1]
    except OSError:  # not Linux
        namespace = FIRST_PID_NAMESPACE
    return socket.gethostname() + ("" if namespace == FIRST_PID_NAMESPACE else f"/{namespace}")


def _locked(path: Path, patience: float) -> Tuple[int, bool]:
    """The open file, and whether its lock became free in time. The file may be deleted before it is locked; a new file
    is then created."""
    given_up_at = time.monotonic() + patience
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor, True
        except BlockingIOError:
            if time.monotonic() > given_up_at:
                return descriptor, False
        os.close(descriptor)
        time.sleep(AGAIN_SECONDS)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False

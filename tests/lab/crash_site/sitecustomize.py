"""Python imports this first when its folder is on PYTHONPATH. It kills its own process where LAB_CRASH says.

LAB_CRASH is `module:Class.function@before#2`. See tests/lab/crash.py, which sets it and its companions. The first
Python to start is the driver, whose process id its children inherit.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import signal
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Match, Optional

POINT = re.compile(r"(?P<module>[\w.]+):(?P<path>[\w.]+)@(?P<when>before|after)#(?P<call>\d+)")


def die() -> None:
    """A signal to this process, once for each token file if there is one, so that a retry survives."""
    token = os.environ.get("LAB_CRASH_TOKEN")
    if token:
        try:
            with open(token, "x") as written:
                written.write(str(os.getpid()))
        except FileExistsError:
            return
    how = os.environ.get("LAB_CRASH_HOW", "kill")
    if how == "kill driver":
        os.kill(int(os.environ["LAB_DRIVER"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)


def deadly(function: Callable[..., Any], when: str, call: int) -> Callable[..., Any]:
    """`function`, except that this process ends before or after its `call`-th call."""
    calls = {"before": 0, "after": 0}

    def reached(here: str) -> None:
        calls[here] += 1
        if here == when and calls[here] == call:
            die()

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        reached("before")
        result = function(*args, **kwargs)
        reached("after")
        return result

    @functools.wraps(function)
    def generating(*args: Any, **kwargs: Any) -> Any:
        reached("before")
        yield from function(*args, **kwargs)
        reached("after")

    return generating if inspect.isgeneratorfunction(function) else plain


def arm(module: ModuleType, point: Match[str]) -> None:
    """Replace the function of `module` that the point names."""
    *outer, name = point["path"].split(".")
    owner = functools.reduce(getattr, outer, module)
    found = vars(owner)[name]
    kind = type(found) if isinstance(found, (staticmethod, classmethod)) else None
    function = deadly(found.__func__ if kind else found, point["when"], int(point["call"]))
    setattr(owner, name, kind(function) if kind else function)


class Armoury:
    """A finder that lets the others find, and arms what they load."""

    def __init__(self, point: Match[str]) -> None:
        self.point = point

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name != self.point["module"]:
            return None
        finders = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            if module.__name__ == name:  # all modules of a zip share one loader
                arm(module, self.point)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # the instance, not its class
        return spec


if os.environ.get("LAB_CRASH"):
    os.environ.setdefault("LAB_DRIVER", str(os.getpid()))
    armed = POINT.fullmatch(os.environ["LAB_CRASH"])
    assert armed is not None, os.environ["LAB_CRASH"]
    sys.meta_path.insert(0, Armoury(armed))

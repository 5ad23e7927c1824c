"""A Python name of the user's, `module:name`, in; what it stands for out, or a sentence with the line that names it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from mirror_lib.errors import ConfigError


def entry_point(name: str, key: str, place: str, kind: str) -> Any:
    """What setting `key` names; `kind` is `class` or `function`, and `place` the setting's `file:line`.

    Raises ConfigError where the module cannot be imported, or has nothing of that name that can be called.
    """
    module_name, _, wanted = name.partition(":")
    try:
        module = _imported(module_name, str(Path(place.rpartition(":")[0]).parent))
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise ConfigError(f"{key}: {module_name} cannot be imported: {said(error)}", place) from error
        advice = "install it, or put its file beside the configuration file or its folder on PYTHONPATH"
        raise ConfigError(f"{key}: there is no Python module {module_name}; {advice}", place) from None
    except Exception as error:
        raise ConfigError(f"{key}: {module_name} cannot be imported: {said(error)}", place) from error
    found = getattr(module, wanted, None)
    if not callable(found):
        raise ConfigError(f"{key}: the module {module_name} has no {kind} {wanted}", place)
    return found


def said(error: Exception) -> str:
    """An error of the user's code in one line: its class, and the first line of what it says."""
    first = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _imported(module_name: str, folder: str) -> Any:
    """The module, looked for where Python looks and then in `folder`, so that what is installed is never hidden."""
    sys.path.append(folder)
    try:
        return importlib.import_module(module_name)
    finally:
        sys.path.remove(folder)

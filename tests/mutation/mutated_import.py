"""A pytest plugin: the module that MUTANT_MODULE names is imported from the file that MUTANT_FILE names.

Loaded with `-p` before any test file, in a process that tests one mutant. It also limits what an endless loop may use.
Without MUTANT_MODULE it keeps Hypothesis from writing examples into the checkout, and does no more.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Optional, Sequence

from hypothesis import settings

MEMORY = 4 << 30


class MutatedImport(MetaPathFinder):
    """Finds one module in a file outside the checkout."""

    def __init__(self, module: str, file: str) -> None:
        self._module, self._file = module, file

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """The file's spec for that module; `None` for every other."""
        return importlib.util.spec_from_file_location(fullname, self._file) if fullname == self._module else None


settings.register_profile("mutants", database=None, deadline=None)
settings.load_profile("mutants")
if "MUTANT_MODULE" in os.environ:
    name, seconds = os.environ["MUTANT_MODULE"], int(os.environ["MUTANT_CPU_SECONDS"])
    if name in sys.modules:
        raise RuntimeError(f"{name} was imported before its mutant could be")
    sys.meta_path.insert(0, MutatedImport(name, os.environ["MUTANT_FILE"]))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

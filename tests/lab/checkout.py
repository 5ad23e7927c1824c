"""Where things are in this checkout, and the one error of the lab."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Callable, NoReturn

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"


class LabError(Exception):
    """Why the lab cannot continue, in one sentence."""


def ended(name: str, run: Callable[[], int]) -> NoReturn:
    """End this process as the command `name` that `run` is."""
    try:
        sys.exit(run())
    except LabError as error:
        sys.exit(f"{name}: {error}")


def jars_folder() -> Path:
    folder = CACHE / f"spark-{version('pyspark')}-jars"
    if not folder.is_dir():
        raise LabError(f"no connector jars in {folder}: run `make setup`")
    return folder

"""Where things are in this checkout, and the one error of the lab."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"


class LabError(Exception):
    """Why the lab cannot continue, in one sentence."""


def jars_folder() -> Path:
    """The jars that `make setup` fetched for the Spark of this environment."""
    folder = CACHE / f"spark-{version('pyspark')}-jars"
    if not folder.is_dir():
        raise LabError(f"no connector jars in {folder}: run `make setup`")
    return folder

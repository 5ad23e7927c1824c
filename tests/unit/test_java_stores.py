"""Where Python finds the jar with which it asks Java to open a key store."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import py4j.java_gateway
import pytest
from py4j.version import __version__ as version

from mirror_lib.kafka.java_keystore import py4j_jar


def test_jar_is_found_on_the_class_path_of_a_yarn_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container has no SPARK_HOME, and an archive that is made for a cluster's own Spark has no pyspark."""
    jar = tmp_path / "libs" / f"py4j-{version}.jar"
    jar.parent.mkdir()
    jar.touch()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(py4j.java_gateway, "find_jar_path", lambda: "")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    path = [str(tmp_path), f"{tmp_path}/conf", f"{jar.parent}/*"]
    monkeypatch.setenv("CLASSPATH", os.pathsep.join(path))
    assert py4j_jar() == str(jar)

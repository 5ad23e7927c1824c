"""A process that copies does not ask the system for the same memory again and again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mirror_lib.kafka.connection import keep_freed_memory
from tests.lab.checkout import ROOT

# As fetch answers do: some pieces of megabytes at once, freed, and again.
PROGRAM = """
import resource
from mirror_lib.kafka.connection import keep_freed_memory
{first}
for turn in range(11):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pieces = [bytearray(8 << 20) for _ in range(3)]
    del pieces
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(first: str) -> int:
    """Of ten rounds, after the first one."""
    command = [sys.executable, "-c", PROGRAM.format(first=first)]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="this Python has another allocator than glibc's")
def test_freed_memory_is_used_again_and_without_asking_it_is_not() -> None:
    assert page_faults("keep_freed_memory()") * 10 < page_faults("pass")

"""For all property tests: no example is wrong because the machine was busy, and each run tries others, also in CI."""

from __future__ import annotations

from typing import Iterator

import pytest
from hypothesis import HealthCheck, settings

from mirror_lib.log_lines import name_files

settings.register_profile("busy", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(autouse=True)
def no_files_of_another_test() -> Iterator[None]:
    yield
    name_files([])

"""For all property tests: no example is wrong because the machine was busy, and each run tries others, also in CI."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

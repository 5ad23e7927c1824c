"""Tests on whole clusters, which `make compat-clusters` runs: without CLUSTERS in the environment none is collected."""

from __future__ import annotations

import os

from tests.integration.conftest import ground as ground

collect_ignore_glob = [] if os.environ.get("CLUSTERS") else ["test_*.py"]

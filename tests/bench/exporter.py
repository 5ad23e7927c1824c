"""`python -m tests.bench.exporter`: CPU of exporting metrics, with a cycle every second and a scrape every 15 seconds.

TOPICS=1000, SECONDS=30. Scrapes are made by another process, whose CPU does not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import List

from mirror_lib.config.model import ClusterConfig, MirrorConfig, ReplicationFlow
from mirror_lib.exporter import Exporter
from mirror_lib.metrics import FlowMetrics, by_topic

TOPICS, SECONDS = int(os.environ.get("TOPICS", "1000")), int(os.environ.get("SECONDS", "30"))
SCRAPE_SECONDS = 15
SCRAPE = "import sys, urllib.request; print(len(urllib.request.urlopen(sys.argv[1], timeout=30).read()))"


def cycle(number: int) -> FlowMetrics:
    """One in which each topic was copied and has a lag."""
    names = [f"team-{each % 40}.service-{each}.events" for each in range(TOPICS)]
    topics = by_topic({(name, 0): number % 7 + 1 for name in names}, [(name, 10, 1000) for name in names])
    lag = sum(each.behind_records for each in topics)
    return FlowMetrics("A->B", number, 10 * TOPICS, 1000 * TOPICS, 1.0, 1.0, lag, 1.5, 0, 0, "copying", topics=topics)


def main() -> None:
    """Print the CPU of cycles and scrapes, as a share of a core."""
    flow = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
    cycles = [cycle(number) for number in range(SECONDS)]
    with tempfile.TemporaryDirectory() as folder:
        textfile = str(Path(folder, "mirror.prom")) if os.environ.get("TEXTFILE") else ""
        config = MirrorConfig((flow,), "", "1 second", metrics_port=0, metrics_textfile=textfile)
        said: List[str] = []
        with Exporter(config, [flow], said.append) as exporter:
            sizes, began, used = [], time.monotonic(), time.process_time()
            for number, snapshot in enumerate(cycles, 1):
                time.sleep(max(0.0, began + number - time.monotonic()))
                exporter.show(snapshot)
                if number % SCRAPE_SECONDS == 0:
                    scrape = [sys.executable, "-c", SCRAPE, exporter.address]
                    sizes.append(int(subprocess.run(scrape, stdout=subprocess.PIPE, check=True).stdout))
            used, took = time.process_time() - used, time.monotonic() - began
    print(
        f"{TOPICS} topics, {SECONDS} cycles, {len(sizes)} scrapes of {sizes[-1]:,} bytes: {used:.3f} s of CPU in "
        f"{took:.1f} s, {100 * used / took:.2f} % of a core"
    )


if __name__ == "__main__":
    main()

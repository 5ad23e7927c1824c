"""Signs of life of a flow's run: rows in the table of runs by which a later run sees that this one is under way."""

from __future__ import annotations

import logging
import threading

from pyspark.sql import SparkSession

from mirror_lib.errors import MirrorError
from mirror_lib.ledger.records import MirrorRun
from mirror_lib.ledger.tables import RunTable
from mirror_lib.spark.jobs import named

log = logging.getLogger(__name__)

SIGN_SECONDS = 180.0
# A run without an end and without a sign of life for so long was killed: three signs are missing.
DEAD_SECONDS = 600.0
SIGNS_TO_A_CLEANING = 100


class SignsOfLife:
    """Writes a sign every SIGN_SECONDS in a thread of its own, from `start` to `end`. A failure never ends the copy."""

    def __init__(self, spark: SparkSession, runs: RunTable, run: MirrorRun) -> None:
        self._spark, self._runs, self._run = spark, runs, run
        self._over = threading.Event()

    def start(self) -> None:
        """Begin; the first sign comes after SIGN_SECONDS."""
        threading.Thread(target=self._go, name=f"{self._run.flow} signs of life", daemon=True).start()

    def end(self) -> None:
        """No further sign."""
        self._over.set()

    def _go(self) -> None:
        signs = 0
        while not self._over.wait(SIGN_SECONDS):
            try:
                with named(self._spark, f"{self._run.flow}: sign of life"):
                    self._runs.alive(self._run)
                    if signs % SIGNS_TO_A_CLEANING == 0:
                        self._runs.drop_old_signs(self._run.flow)
                signs += 1
            except MirrorError as error:
                log.info("%s: no sign of life was written: %s", self._run.flow, error)

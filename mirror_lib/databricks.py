"""What differs on Databricks: the platform owns the Spark context, shades Kafka's classes, and drops exit codes.

`main` is the entry point of a `python_wheel_task`: it returns where the command succeeded, and raises otherwise.
"""

from __future__ import annotations

import re
import sys
from typing import Mapping, Optional, Sequence

from mirror_lib.errors import EXIT_OK

# Set on every Databricks cluster, on the driver and on executors.
RUNTIME = "DATABRICKS_RUNTIME_VERSION"
# The package of Kafka's classes in the runtime's own connector.
SHADED = "kafkashaded."
# Only the first word, as a password behind a login class may contain anything.
_KAFKAS_CLASS = re.compile(rf"^\s*(?:{re.escape(SHADED)})?(?=org\.apache\.kafka\.)")


class CommandFailedError(Exception):
    """The command ended with another code than 0, so that the platform marks the run as failed."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"mirror ended with exit code {exit_code}; its messages above name the reason")
        self.exit_code = exit_code


def on_databricks(environ: Mapping[str, str]) -> bool:
    """Whether this process runs on a Databricks cluster."""
    return RUNTIME in environ


def java_class(value: str, environ: Mapping[str, str]) -> str:
    """A class name, or a JAAS line, which begins with one, for this Spark: Kafka's are shaded on Databricks alone.

    Classes that are not Kafka's, such as Kerberos's, stay as they are. Pure.
    """
    return _KAFKAS_CLASS.sub(SHADED if on_databricks(environ) else "", value, count=1)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run one command of `mirror`; raise `CommandFailedError` where it ends with another code than 0."""
    from mirror_lib.cli import main as command  # late: configuration imports this module too

    try:
        code = command(argv)
    except SystemExit as ended:  # argparse: --help, and bad usage
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    if code != EXIT_OK:
        raise CommandFailedError(code)


if __name__ == "__main__":
    main(sys.argv[1:])

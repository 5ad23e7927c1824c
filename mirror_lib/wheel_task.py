"""The entry point of Databricks' `python_wheel_task`, which ignores the exit code that an entry point returns."""

from __future__ import annotations

import sys
from typing import Optional, Sequence

from mirror_lib.cli import main as command
from mirror_lib.errors import EXIT_OK


class CommandFailedError(Exception):
    """The command ended with an exit code other than 0; the platform then marks the run as failed."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"mirror ended with exit code {exit_code}; its messages above name the reason")
        self.exit_code = exit_code


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run one command of `mirror`; raise `CommandFailedError` if its exit code is not 0."""
    try:
        code = command(argv)
    except SystemExit as ended:  # argparse: --help, and bad usage
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    if code != EXIT_OK:
        raise CommandFailedError(code)


if __name__ == "__main__":
    main(sys.argv[1:])

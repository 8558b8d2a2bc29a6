"""The `posir` command.

Slow modules are imported in `run_app`, so that Ctrl-C during an import prints no traceback.
"""

from __future__ import annotations

import os
import sys

#: Exit status for Ctrl-C and for a closed pipe (`| head`), as in shells.
INTERRUPTED = 130
PIPE_CLOSED = 141


def main() -> None:
    """Run the command, and exit quietly on Ctrl-C or a closed pipe."""
    try:
        run_app()
    except KeyboardInterrupt as interruption:
        print(str(interruption) or "interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Otherwise, Python flushes the buffer at exit and prints a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)


def run_app() -> None:
    """Run the command. Report user errors and a full disk without a traceback."""
    from posir_tasks.base.errors import sanitize_errors
    from posir_tasks.base.garbage import collect_rarely
    from posir_tasks.base.logs import sanitize_log
    from posir_tasks.base.wording import make_output_encodable
    from posir_tasks.command.commands import run_command
    from posir_tasks.command.exit_status import report_errors

    make_output_encodable()
    sanitize_log()
    with collect_rarely(), report_errors(), sanitize_errors():
        sys.exit(run_command(sys.argv[1:] or ["--help"]))

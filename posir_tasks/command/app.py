"""The `posir` command.

The module imports nothing slow, so that Ctrl-C during the other imports causes no traceback.
"""

from __future__ import annotations

import os
import sys

#: Exit status after Ctrl-C, and after the reader of a pipe such as `head` ended, as in shells.
INTERRUPTED = 130
READER_ENDED = 141


def main() -> None:
    """Run the command. Print user errors as one message, with exit status 1."""
    try:
        run_app()
    except KeyboardInterrupt as interruption:
        print(str(interruption) or "interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Python would flush the buffer at exit, and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_ENDED)


def run_app() -> None:
    """Run the command, and report user errors and a full disk."""
    from posir_tasks.base.errors import sanitize_errors
    from posir_tasks.base.logs import sanitize_log
    from posir_tasks.base.wording import make_output_encodable
    from posir_tasks.command.commands import run_command
    from posir_tasks.command.exit_status import report_errors

    make_output_encodable()
    sanitize_log()
    with report_errors(), sanitize_errors():
        sys.exit(run_command(sys.argv[1:] or ["--help"]))

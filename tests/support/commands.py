"""Run the real `mteb` and `posir` commands as a user would."""

import os
import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
#: The environment without variables of posir and the Hub, and without network access.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("POSIR_", "HF_"))} | {
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "160",
}


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this Python environment to completion."""
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        capture_output=True,
        text=True,
        env=CLEAN | environment,
        timeout=300,
        check=False,
    )


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new process."""
    return run(Path(sys.executable).name, "-c", code, **environment)

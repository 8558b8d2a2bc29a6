"""Run the benchmarks of speed and memory: the table of all commands next to their bare jobs and the
last release's ratios, and with DATA all others: against plain mteb, bm25s alone, matrix products
alone and no embedding cache.

Use, on an idle machine: python benchmarks/run_all.py [--quick] [--write] [DATA], where DATA holds
PosIR-Benchmark-v1 with eng-Latn and with jpn-Jpan/<one domain>. `--quick` runs the commands that
take little, `--write` saves the ratios in `ratios.json` before a release. The exit status is 1 if a
ratio is more than 1.25 times the last release's; its row is red.
"""

import os
import subprocess
import sys
from pathlib import Path

#: Benchmarks that need data, with their arguments.
WITH_DATA = (
    ("bm25.py", "{data}"),
    ("posq_size.py", "{data}"),
    ("posq_size.py", "{data}", "scaling"),
    ("posir_size.py",),
    ("posir_size.py", "scaling"),
    ("dense_overhead.py", "PosIR-English"),
    ("embedding_cache.py", "PosIR-English"),
)


def run(name: str, *arguments: str, environment: dict[str, str]) -> int:
    """Run a benchmark, print its command, and return its exit status."""
    print("\n$", "python", f"benchmarks/{name}", *arguments, flush=True)
    command = [sys.executable, str(Path(__file__).parent / name), *arguments]
    return subprocess.run(command, env=os.environ | environment, check=False).returncode


def main() -> int:
    """Run them all, and return 1 if one failed."""
    options = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    folders = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    statuses = [run("commands.py", *options, environment={})]
    for data in folders:
        for name, *arguments in WITH_DATA:
            filled = [argument.format(data=data) for argument in arguments]
            statuses.append(run(name, *filled, environment={"POSIR_DATA": data}))
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())

"""Run the benchmarks of speed and memory.

Usage, on an idle machine: python benchmarks/run_all.py [--quick] [--write] [DATA]

Commands are compared with bare jobs and with the ratios of the last release. If a ratio is more
than 1.25 times as large, its row is red and the exit status is 1. `--quick` runs only fast
commands. `--write` saves the ratios in `ratios.json`, before a release. With DATA, which contains
PosIR-Benchmark-v1 with eng-Latn and jpn-Jpan/<one domain>, all other benchmarks also run. They
compare posir with plain mteb, only bm25s, only matrix products, and no embedding cache.
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
    """Run all benchmarks. Return 1 if any fails."""
    options = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    folders = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    statuses = [run("commands.py", *options, environment={})]
    for data in folders:
        for name, *arguments in WITH_DATA:
            formatted_arguments = [argument.format(data=data) for argument in arguments]
            statuses.append(run(name, *formatted_arguments, environment={"POSIR_DATA": data}))
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())

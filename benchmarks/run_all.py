"""Run all benchmarks of speed and memory: against plain mteb, bm25s alone, matrix products alone
and no embedding cache.

Use, on an idle machine: python benchmarks/run_all.py DATA, where DATA holds PosIR-Benchmark-v1 with
eng-Latn and with jpn-Jpan/<one domain>.
"""

import os
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    data = sys.argv[1]
    for name, *arguments in (
        ("bm25.py", data),
        ("posq_size.py", data),
        ("posq_size.py", data, "scaling"),
        ("posir_size.py",),
        ("posir_size.py", "scaling"),
        ("dense_overhead.py", "PosIR-English"),
        ("embedding_cache.py", "PosIR-English"),
    ):
        print("\n$", "python", f"benchmarks/{name}", *arguments, flush=True)
        subprocess.run(
            [sys.executable, str(Path(__file__).parent / name), *arguments],
            check=True,
            env=os.environ | {"POSIR_DATA": data},
        )

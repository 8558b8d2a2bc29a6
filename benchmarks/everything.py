"""All ratios, one benchmark after the other: against plain mteb, raw bm25s, the bare products and no store, and how costs grow.

Use, on an idle machine: python benchmarks/everything.py DATA, where DATA holds PosIR-Benchmark-v1 with eng-Latn and with
jpn-Jpan/<one domain>.
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
        ("posq_size.py", data, "growth"),
        ("posir_size.py",),
        ("posir_size.py", "growth"),
        ("dense.py", "PosIR-English"),
        ("store.py", "PosIR-English"),
    ):
        print("\n$", "python", f"benchmarks/{name}", *arguments, flush=True)
        subprocess.run(
            [sys.executable, str(Path(__file__).parent / name), *arguments], check=True, env=os.environ | {"POSIR_DATA": data}
        )

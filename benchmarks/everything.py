"""All ratios, one benchmark after the other: against plain mteb, raw bm25s and the bare products, and how costs grow.

Use, on an idle machine: python benchmarks/everything.py DATA, where DATA holds PosIR-Benchmark-v1 with eng-Latn and with
jpn-Jpan/<one domain>.
"""

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
    ):
        print("\n$", "python", f"benchmarks/{name}", *arguments, flush=True)
        subprocess.run([sys.executable, str(Path(__file__).parent / name), *arguments], check=True)

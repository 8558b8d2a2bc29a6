"""Compare BM25 on a large domain: `mteb run` of a PosIR task, `mteb run` of a plain task with the
same data, and only bm25s.

Usage: python benchmarks/bm25.py DATA [LANGUAGE_CODE] [TASK], where DATA contains
PosIR-Benchmark-v1/<code>/<one domain>.
"""

import json
import sys
import tempfile
from pathlib import Path

from measure import measure, print_rows

BM25 = "mteb/baseline-bm25s"


def main() -> None:
    """Measure the three programs, and print costs and ratios."""
    data = Path(sys.argv[1]).resolve()
    code = sys.argv[2] if len(sys.argv) > 2 else "jpn-Jpan"
    task = sys.argv[3] if len(sys.argv) > 3 else "PosIR-Japanese"
    (domain,) = (data / "PosIR-Benchmark-v1" / code).iterdir()
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as output:
        run = ["run", "-m", BM25, "--output-folder", output, "-v", "0", "-t"]
        posir_cost = measure(
            [str(Path(sys.executable).parent / "mteb"), *run, task], {"POSIR_DATA": str(data)}
        )
        (result,) = Path(output).rglob(f"{task}.json")
        posir_seconds = json.loads(result.read_text())["evaluation_time"]
        plain_cost = measure(
            [sys.executable, str(here / "plain_mteb.py"), str(domain), code, *run, "Plain"],
            {"POSIR_AUTOLOAD": "0"},
        )
    raw_seconds = float(
        measure(
            [sys.executable, str(here / "raw_bm25s.py"), str(domain), code.split("-")[0]]
        ).output
    )
    print_rows(
        [
            (f"mteb run -t {task}", posir_cost),
            ("mteb run, plain task, default settings", plain_cost),
        ]
    )
    print(
        f"\nwithout imports: {task} {posir_seconds:.1f} s, bm25s alone {raw_seconds:.1f} s, ratio "
        f"{posir_seconds / raw_seconds:.2f}"
    )


if __name__ == "__main__":
    main()

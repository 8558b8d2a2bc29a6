"""Reading files of tables with polars.

The readers of polars take `[`, `*` and `?` in a path for a pattern, which a folder such as `beir[1]` does not match. Here every
path is literal, so no other module calls them.
"""

from io import BytesIO
from itertools import islice
from pathlib import Path

import polars as pl

from posir_tasks.files import open_decompressed, read_decompressed


def read_delimited(file: Path) -> pl.DataFrame:
    """Read comma-, semicolon- or tab-separated values, perhaps compressed, below a line of headings; every value is text."""
    content = read_decompressed(file)
    heading = content[: content.find(b"\n")]
    return pl.read_csv(
        BytesIO(content), separator=max(",;\t", key=lambda mark: heading.count(mark.encode())), infer_schema_length=0
    )


def read_json_rows(file: Path, limit: int | None = None) -> pl.DataFrame:
    """Read JSON objects, one per line or in a list, which may be compressed; of lines, at most a number, for their columns."""
    with open_decompressed(file) as opened:
        is_list = opened.read(1) == b"["
    if is_list:
        return pl.read_json(BytesIO(read_decompressed(file)), infer_schema_length=None)
    if limit is None:
        return pl.read_ndjson(BytesIO(read_decompressed(file)), infer_schema_length=None)
    with open_decompressed(file) as opened:
        return pl.read_ndjson(BytesIO(b"".join(islice(opened, limit))), infer_schema_length=None)

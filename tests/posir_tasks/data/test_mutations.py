"""Random changes of a valid dataset: the validator reports every error, and the loader reads all
usable rows.

Expected values are computed independently: tables with pyarrow, rules in plain Python, bins with
pandas.
"""

import random
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base.errors import DataError
from posir_tasks.data.formats.passages import ReadOptions
from posir_tasks.data.formats.question_rows import is_question_file, read_json_lines
from posir_tasks.data.formats.text_rows import read_parquet_texts
from posir_tasks.data.posir import SubsetKey, inspect_domain, read_domain
from posir_tasks.data.repository import LocalRepository
from posir_tasks.values.schemes import RelativePositions
from tests.support.datasets import FILES, posir_tables, write_domain
from tests.support.mutations import MUTATIONS

TEXTS = {
    "d0": "The mill by the river went tick tick tick. It burned down in 1901.",
    "d1": "👩‍🚀 Zoë landed on the moon. She took 🇫🇮 along.",
    "d2": "كُتِبَ هذا النصّ باللغة العربية.",
    "d3": "Cafe\u0301 Nai\u0308f 開店は十時です。",
    "d4": "A text that nobody asks about.",
}
ASKED = {
    "q0": ("Where was the mill?", "d0", "by the river"),
    "q1": ("When did it burn?", "d0", "1901"),
    "q2": ("Where did she land?", "d1", "the moon"),
    "q3": ("What came along?", "d1", "🇫🇮"),
    "q4": ("بأي لغة؟", "d2", "العربية"),
    "q5": ("いつ開きますか", "d3", "十時"),
    "q6": ("Which place?", "d3", "Cafe\u0301 Nai\u0308f"),
}
TOKENS = [1, 512, 513, 1024, 1025, 1536, 1537]
LANGUAGE, ENGLISH = "deu-Latn", "eng-Latn"
COLUMN_KINDS = {
    "corpus": {"_id": "text", "text": "text"},
    "queries": {
        "_id": "text",
        "text": "text",
        "pos_char_span": "span",
        "pos_char_length": "int",
        "pos_token_length": "int",
    },
    "qrels": {"query-id": "text", "corpus-id": "text", "score": "number"},
}


def has_kind(kind, expected_kind):
    types = pa.types
    if expected_kind == "text":
        return types.is_string(kind) or types.is_large_string(kind)
    if expected_kind == "span":
        return (
            types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        ) and types.is_integer(kind.value_type)
    return types.is_integer(kind) or (
        expected_kind == "number" and (types.is_floating(kind) or types.is_decimal(kind))
    )


def fits_64_bits(value):
    if isinstance(value, list):
        return all(map(fits_64_bits, value))
    return not isinstance(value, int) or value < 2**63


def read_valid_table(file, kinds):
    """Return the rows of a file; None if it is unreadable or a column has the wrong type."""
    try:
        table = pq.ParquetFile(file).read()
        table.validate(full=True)
        fits = all(
            table.column_names.count(name) == 1 and has_kind(table[name].type, kinds[name])
            for name in kinds
        )
        rows = table.select(list(kinds)).to_pylist() if fits else []
        return (
            rows
            if fits and all(fits_64_bits(value) for row in rows for value in row.values())
            else None
        )
    except (OSError, pa.ArrowException, ValueError, KeyError):
        return None


def find_valid_documents(corpus, queries, qrels, *, same_language):
    """Return the document of each query; None if any rule of the layout is violated."""
    ids = [document["_id"] for document in corpus]
    texts = [row["text"] for row in (*corpus, *queries)]
    query_ids = [query["_id"] for query in queries]
    if (
        not all((*ids, *query_ids))
        or len({*ids}) < len(ids)
        or len({*query_ids}) < len(query_ids)
        or not ids
        or not query_ids
    ):
        return None
    if not all(text and text.strip() for text in texts) or any(
        None in row.values() for row in qrels
    ):
        return None
    if not all(np.isfinite(float(row["score"])) for row in qrels):
        return None
    by_id = {document["_id"]: document["text"] for document in corpus}
    documents = []
    for query in queries:
        positives = {
            row["corpus-id"]
            for row in qrels
            if row["query-id"] == query["_id"] and row["score"] > 0
        }
        span, length, tokens = (
            query["pos_char_span"] or [],
            query["pos_char_length"],
            query["pos_token_length"],
        )
        if len(positives) != 1 or not positives <= by_id.keys() or length is None or tokens is None:
            return None
        (document,) = positives
        right_length = length == len(by_id[document]) if same_language else 1 <= length < 2**31
        is_span = len(span) == 2 and None not in span and 0 <= span[0] < span[1] <= length
        if not (right_length and 1 <= tokens < 2**31 and is_span):
            return None
        documents.append(document)
    return documents


def select_first_by_id(rows):
    """Map each valid id to its first row."""
    values = {}
    for row in rows:
        if row["_id"] and "\0" not in row["_id"]:
            values.setdefault(row["_id"], row)
    return values


def find_usable_queries(corpus, queries, qrels):
    """Return the usable queries with their documents; None if there are none."""
    texts = select_first_by_id(corpus)
    judged = [
        row
        for row in qrels
        if None not in row.values() and np.isfinite(float(row["score"])) and row["score"] > 0
    ]
    values = []
    for name, query in select_first_by_id(queries).items():
        span, positives = (
            query["pos_char_span"] or [],
            {row["corpus-id"] for row in judged if row["query-id"] == name},
        )
        has_text = query["text"] and query["text"].strip()
        lengths = query["pos_char_length"], query["pos_token_length"]
        has_place = (
            len(span) == 2
            and None not in span
            and all(length and 1 <= length < 2**31 for length in lengths)
        )
        if has_text and has_place and len(positives & texts.keys()) == 1:
            (document,) = positives & texts.keys()
            values.append(query | {"document": document})
    return values or None


def compute_expected(folder, corpus_folder, *, same_language):
    """Return True if the data is valid, and the document and cells of each usable query; None if
    there are none.
    """
    places = {"corpus": corpus_folder, "queries": folder, "qrels": folder}
    tables = {
        name: read_valid_table(places[name] / FILES[name], COLUMN_KINDS[name]) for name in FILES
    }
    if None in tables.values():
        return False, None
    rows = find_usable_queries(**tables)
    if rows is None:
        return False, None
    frame = pd.DataFrame(rows)
    middle = (
        frame["pos_char_span"].map(sum).astype(float) / 2 / frame["pos_char_length"].astype(float)
    )
    cells = pd.DataFrame(
        {
            "query": frame["_id"],
            "text": frame["text"],
            "document": frame["document"],
            "start": frame["pos_char_span"].map(min).clip(-(2**40), 2**40),
            "end": frame["pos_char_span"].map(max).clip(-(2**40), 2**40),
            "position": pd.cut(
                middle.clip(0, 1), np.linspace(0, 1, 21), include_lowest=True, labels=False
            ),
            "length": pd.cut(
                frame["pos_token_length"].astype(float), [0, 512, 1024, 1536, np.inf], labels=False
            ),
        }
    )
    return find_valid_documents(**tables, same_language=same_language) is not None, cells


def check_consistency(root, corpus_language):
    """Compare loader and validator with the expected values."""
    same_language = corpus_language == LANGUAGE
    folder, corpus_folder = root / LANGUAGE / "sports", root / corpus_language / "sports"
    is_valid, expected_cells = compute_expected(folder, corpus_folder, same_language=same_language)
    problems, _ = inspect_domain(
        LocalRepository(root), SubsetKey(LANGUAGE, corpus_language, "sports")
    )
    assert (not problems) == is_valid, problems
    assert all(problem.file.startswith(str(root)) for problem in problems)
    try:
        data, read_error = (
            read_domain(LocalRepository(root), LANGUAGE, corpus_language, "sports"),
            None,
        )
    except DataError as error:
        data, read_error = None, error
    assert (data is None) == (expected_cells is None), read_error
    if data is not None:
        evidence, cells = data.evidence, RelativePositions().cells(data.evidence)
        assert data.queries["id"][:] == evidence.query_ids
        read = (
            evidence.query_ids,
            data.queries["text"][:],
            evidence.document_ids,
            evidence.starts,
            evidence.ends,
        )
        columns = dict(
            zip(
                expected_cells.columns,
                map(list, (*read, cells.position, cells.length)),
                strict=True,
            )
        )
        assert columns == expected_cells.to_dict("list")
        but_for_titles = all(problem.field == "pos_title" for problem in problems)
        harmless = {"queries_removed", "judgments_with_several_grades"}
        assert (data.tolerated.keys() <= harmless) == (is_valid or but_for_titles), problems


@given(MUTATIONS, st.sampled_from([LANGUAGE, ENGLISH]))
def test_mutated_datasets_are_read_and_validated_strictly(mutations, corpus_language):
    """The corpus is the changed corpus of the same language, or the English corpus."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        tables = posir_tables(TEXTS, ASKED)
        tables["queries"] = tables["queries"].with_columns(pos_token_length=np.array(TOKENS))
        write_domain(root, tables, language=ENGLISH)
        folder = write_domain(root, tables, language=LANGUAGE)
        for mutate in mutations:
            mutate(folder)
        check_consistency(root, corpus_language)


def test_the_valid_dataset_is_read(tmp_path):
    """Otherwise the test above could pass by rejecting all data."""
    tables = posir_tables(TEXTS, ASKED)
    for language in (LANGUAGE, ENGLISH):
        write_domain(tmp_path, tables, language=language)
        folders = tmp_path / LANGUAGE / "sports", tmp_path / language / "sports"
        is_valid, expected_cells = compute_expected(*folders, same_language=language == LANGUAGE)
        assert is_valid
        assert len(expected_cells) == len(ASKED)
        check_consistency(tmp_path, language)


def test_damaged_parquet_files_raise_errors_without_panicking(tmp_path, capfd):
    file, rng, error_count = tmp_path / "rows.parquet", random.Random(14), 0
    query_ids = [
        (TEXTS[document], question, answer) for question, document, answer in ASKED.values()
    ]
    pl.DataFrame(query_ids, ["context", "question", "answer"], orient="row").write_parquet(file)
    content = file.read_bytes()
    for number in range(300):
        damaged = bytearray(content)
        for index in rng.sample(range(len(content)), 1 + number % 4):
            damaged[index] = rng.randrange(256)
        file.write_bytes(damaged[: len(content) - number % 2 * rng.randrange(len(content))])
        try:
            list(read_json_lines(file))
        except DataError as error:
            error_count += f"{file}: not a readable parquet file" in str(error)
        with suppress(DataError):
            list(read_parquet_texts(file, ReadOptions("context")))
        is_question_file(file)
    assert error_count > 100
    assert "panicked" not in capfd.readouterr().err

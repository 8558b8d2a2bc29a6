"""Random changes of files in all imported formats: their content is read back, or they are
rejected.

The expected content is computed independently: rules in plain Python, spans by trying all starts.
"""

import codecs
import json
import tempfile
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.base.errors import DataError
from posir_tasks.data.formats.collections import read_beir
from posir_tasks.data.formats.passages import ReadOptions
from posir_tasks.data.formats.question_rows import read_json_lines, read_squad_json
from tests.posir_tasks.data.test_mutations import ASKED as QUESTIONS
from tests.posir_tasks.data.test_mutations import TEXTS
from tests.support.datasets import build_squad, imported, read_back

ASKED = [
    ("d0", "How?", "tick"),
    *((document, question, answer) for question, document, answer in QUESTIONS.values()),
]
#: Values that may replace a field.
VALUES = [
    *(None, True, 0, -1, 3, 1.5, 2**60, [], [3, 7], ["a"], {}),
    *("", " ", "the", "moon ", "mill", "d0", "\ud83d", "e\u0301", "é"),
]
CELLS = ["", "q1", "q9", "d0", "d9", "0", "1", "-1", "3", "1.5", "nan", "inf", "x", str(2**60)]
#: Errors of the `expected_*` functions for invalid files.
INVALID_FILE_ERRORS = (AssertionError, KeyError, ValueError, RecursionError)


def build_span_fields(document, answer):
    start = TEXTS[document].index(answer)
    return {"answer": answer, "start": start, "end": start + len(answer)}


def build_squad_file():
    questions = {
        f"q{row}": (question, document, answer)
        for row, (document, question, answer) in enumerate(ASKED)
    }
    return {
        "data": [
            {"paragraphs": article["paragraphs"]}
            for article in build_squad(TEXTS, questions)["data"]
        ]
    }


def build_rows():
    return [
        {
            "id": f"q{row}",
            "document": document,
            "context": TEXTS[document],
            "question": question,
            **build_span_fields(document, answer),
        }
        for row, (document, question, answer) in enumerate(ASKED)
    ]


def build_beir():
    """Build the files of a BEIR folder. The first two queries contain their spans."""
    spans = [build_span_fields(document, answer) for document, _, answer in ASKED]
    queries = [{"_id": f"q{row}", "text": question} for row, (_, question, _) in enumerate(ASKED)]
    for query, span in zip(queries[:2], spans[:2], strict=True):
        query["metadata"] = {
            "pos_char_span": [span["start"], span["end"]],
            "answer": span["answer"],
        }
    return {
        "corpus": [{"_id": name, "text": text} for name, text in TEXTS.items()],
        "queries": queries,
        "qrels": [["query-id", "corpus-id", "score", "start", "end"]]
        + [[f"q{row}", document, "1", "", ""] for row, (document, _, _) in enumerate(ASKED[:2])]
        + [
            [f"q{row}", ASKED[row][0], "1", str(spans[row]["start"]), str(spans[row]["end"])]
            for row in range(2, len(ASKED))
        ],
    }


# Mutations.


def list_paths(value, before=()):
    if before:
        yield before
    for key, child in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from list_paths(child, (*before, key))


def get_value(value, path):
    for key in path:
        value = value[key]
    return value


@st.composite
def mutate(draw, make, values=VALUES):
    """Generate a value with up to three fields replaced, removed, repeated or shifted."""
    value = make()
    for _ in range(draw(st.integers(0, 3))):
        numbers = [path for path in list_paths(value) if type(get_value(value, path)) is int]
        *path, last = draw(
            st.sampled_from(numbers if numbers and draw(st.booleans()) else [*list_paths(value)])
        )
        parent = get_value(value, path)
        operation = draw(
            st.sampled_from(["replace", "shift", "shift", "shift", "remove", "repeat"])
        )
        if type(parent[last]) is int and operation == "shift":
            parent[last] += draw(st.integers(-8, 8))
        elif operation == "repeat" and isinstance(parent, list):
            parent.insert(draw(st.integers(0, len(parent))), deepcopy(parent[last]))
        elif operation == "remove":
            del parent[last]
        else:
            parent[last] = deepcopy(draw(st.sampled_from(values)))
        if not value:
            break
    return value


@st.composite
def encode_text(draw, text):
    """Encode a text, sometimes truncated or in another encoding."""
    encoding = draw(st.sampled_from([*["utf-8"] * 6, "utf-8-sig", "utf-16", "latin-1"]))
    content = text.encode(encoding, "replace" if encoding == "latin-1" else "surrogatepass")
    return content[: int(len(content) * draw(st.sampled_from([*[1.0] * 8, 0.0, 0.5, 0.97])))]


def write_json_lines(records, *, escape):
    return "".join(json.dumps(record, ensure_ascii=escape) + "\n" for record in records)


# Expected content, from an independent implementation of the rules.


def expected_span(text, answer, start, end, *, repair):
    """Return start and end of an answer; None if the question must be skipped."""

    def find_starts(match, near, distance):
        return [
            candidate
            for candidate in range(len(text))
            if abs(candidate - near) <= distance and text.startswith(match, candidate)
        ]

    if answer is not None and not answer.strip():
        return None
    if start is None:
        result = find_starts(answer, 0, len(text)) if answer is not None and end is None else []
        return (result[0], result[0] + len(answer)) if len(result) == 1 else None
    if answer is None:
        return (
            (start, end)
            if end is not None and 0 <= start < end <= len(text) and text[start:end].strip()
            else None
        )
    if start in find_starts(answer, start, 0) and end in (None, start + len(answer)):
        return start, start + len(answer)
    for match, candidate in (
        ((answer, start), (answer.strip(), start + answer.index(answer.strip()))) if repair else ()
    ):
        result = find_starts(match, candidate, 5)
        if result:
            return (result[0], result[0] + len(match)) if len(result) == 1 else None
    return None


def get_field(record, name, *kinds):
    """Return a field; raise an error if it has another type or cannot be encoded."""
    assert isinstance(record, dict)
    value = record.get(name)
    assert type(value) in kinds
    assert not isinstance(value, str) or value.encode() is not None
    return value


NONE, MALFORMED = type(None), object()


def get_valid(record, name, *kinds, otherwise=None):
    try:
        return get_field(record, name, *kinds)
    except (AssertionError, ValueError):
        return otherwise


def is_usable(value, kind):
    return value is None or (
        type(value) is kind
        and (kind is not str or not any("\ud800" <= c <= "\udfff" for c in value))
    )


def expected_squad(content, *, repair):
    """Return question, document and evidence of all questions to import."""
    expected_rows = {}
    # Decode strictly, since json.loads accepts surrogates in UTF-8.
    value = json.loads(content.decode(json.detect_encoding(content)))
    for article in value if isinstance(value, list) else get_field(value, "data", list):
        # Malformed parts are skipped.
        for paragraph in get_valid(article, "paragraphs", list) or ():
            text, questions = (
                get_valid(paragraph, *part) for part in (("context", str), ("qas", list))
            )
            if text is None or questions is None:
                continue
            assert text.strip()
            for number, qa in enumerate(questions):
                question = get_valid(qa, "question", str)
                if (
                    question is None
                    or get_valid(qa, "id", int, str, NONE, otherwise=MALFORMED) is MALFORMED
                ):
                    continue
                question_id, answers = qa.get("id"), qa.get("answers")
                answer = answers[0] if isinstance(answers, list) and answers else None
                answer_text, start = (
                    (answer.get("text"), answer.get("answer_start"))
                    if isinstance(answer, dict)
                    else (None, None)
                )
                if (
                    not question.strip()
                    or type(start) is not int
                    or answer_text is None
                    or not is_usable(answer_text, str)
                ):
                    continue
                span = expected_span(text, answer_text, start, None, repair=repair)
                if span:
                    name = (
                        (id(paragraph), number) if question_id in (None, "") else str(question_id)
                    )
                    expected_rows[text, name, question, span] = (question, text, text[slice(*span)])
    return list(expected_rows.values())


def read_lines(content):
    """Yield the lines of UTF-16 with a byte-order mark, or the valid lines of UTF-8."""
    if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        yield from content.decode("utf-16").split("\n")
        return
    for line in content.removeprefix(codecs.BOM_UTF8).split(b"\n"):
        with suppress(UnicodeDecodeError):
            yield line.decode()


def read_records(content):
    for line in read_lines(content):
        if line.strip():
            record = json.loads(line)
            assert isinstance(record, dict)
            yield record


def expected_lines(content, *, repair):
    documents, queries, expected_rows, derived_ids = {}, set(), [], {}
    for number, record in enumerate(read_records(content)):
        text, question = get_field(record, "context", str), get_field(record, "question", str, NONE)
        assert text.strip()
        get_field(record, "title", str, NONE)
        question_id, document_id = (
            get_field(record, name, int, str, NONE) for name in ("id", "document")
        )
        name = (
            str(document_id)
            if document_id not in (None, "")
            else derived_ids.setdefault(text, f"sports_{len(documents)}")
        )
        assert documents.setdefault(name, text) == text
        kinds = {"answer": str, "start": int, "end": int, "answers": dict}
        if (
            question is None
            or not question.strip()
            or not all(is_usable(record.get(key), kind) for key, kind in kinds.items())
        ):
            continue
        if record.get("answers") is not None:
            continue
        span = expected_span(
            text, *(record.get(key) for key in ("answer", "start", "end")), repair=repair
        )
        if span:
            # Questions with the same id are distinguished by their content.
            key = number if question_id in (None, "") else (str(question_id), question, name, span)
            if key not in queries:
                expected_rows.append((question, text, text[slice(*span)]))
            queries.add(key)
    return expected_rows


@pytest.mark.parametrize(
    ("make", "write", "read", "expected"),
    [
        (
            build_squad_file,
            lambda value, escape: json.dumps(value, ensure_ascii=escape),
            read_squad_json,
            expected_squad,
        ),
        (
            build_rows,
            lambda value, escape: write_json_lines(value, escape=escape),
            read_json_lines,
            expected_lines,
        ),
    ],
    ids=["squad", "lines"],
)
@given(data=st.data(), escape=st.booleans(), repair=st.booleans())
def test_mutated_files(make, write, read, expected, data, escape, repair):
    """The content of files is read back; invalid and empty files are rejected and named."""
    content = data.draw(encode_text(write(data.draw(mutate(make)), escape)))
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "a.json"
        file.write_bytes(content)
        try:
            expected_rows = expected(content, repair=repair)
        except INVALID_FILE_ERRORS:
            expected_rows = []
        output = Path(name) / "out"
        try:
            result, message = imported(read(file), output, repair=repair), ""
        except DataError as error:
            result, message = None, str(error)
        assert (result is None) == (not expected_rows), message
        if result is None:
            assert name in message or message.startswith(
                "There is no question with a usable answer"
            )
            assert not output.exists()
        else:
            assert read_back(output) == expected_rows
            assert repair or not result.repaired


@given(
    st.data(),
    mutate(lambda: build_beir()["corpus"]),
    mutate(lambda: build_beir()["queries"]),
    mutate(lambda: build_beir()["qrels"], CELLS),
    st.lists(
        st.tuples(
            *map(st.sampled_from, (["q1", "q9"], ["d0", "d1"], ["0", "1"], ["", "9"], ["", "12"]))
        ),
        max_size=2,
    ),
    st.booleans(),
)
def test_mutated_beir_folders(data, corpus, queries, qrels, more_rows, repair):
    contents = {
        "corpus.jsonl": data.draw(encode_text(write_json_lines(corpus, escape=True))),
        "queries.jsonl": data.draw(encode_text(write_json_lines(queries, escape=True))),
        "qrels/test.tsv": "".join(
            "\t".join(row) + "\n" for row in [*qrels, *more_rows] if not isinstance(row, str)
        ).encode(),
    }
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "qrels").mkdir()
        for file, content in contents.items():
            (Path(name) / file).write_bytes(content)
        output = Path(name) / "out"
        try:
            imported(read_beir(Path(name), ReadOptions()), output, repair=repair)
        except DataError as error:
            message = str(error)
        else:
            texts, questions = (
                {row["text"] for row in read_records(contents[file])} for file in list(contents)[:2]
            )
            read = [
                (query in questions, text in texts, bool(evidence.strip()))
                for query, text, evidence in read_back(output)
            ]
            assert {*read} == {(True, True, True)}
            return
        assert name in message or message.startswith("There is no question with a usable answer")
        assert not output.exists()

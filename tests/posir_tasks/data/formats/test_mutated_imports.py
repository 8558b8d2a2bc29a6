"""Files of every format that is imported, changed at random: what is read back is what they state,
or they are refused.

The expected content is found independently: the format's rules in plain Python, spans by trying
every start.
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
from tests.posir_tasks.data.test_mutations import ASKED as PLACED
from tests.posir_tasks.data.test_mutations import TEXTS
from tests.support.datasets import build_squad, imported, read_back

ASKED = [
    ("d0", "How?", "tick"),
    *((document, question, answer) for question, document, answer in PLACED.values()),
]
#: Values that may replace a field.
VALUES = [
    *(None, True, 0, -1, 3, 1.5, 2**60, [], [3, 7], ["a"], {}),
    *("", " ", "the", "moon ", "mill", "d0", "\ud83d", "e\u0301", "é"),
]
CELLS = ["", "q1", "q9", "d0", "d9", "0", "1", "-1", "3", "1.5", "nan", "inf", "x", str(2**60)]
#: Errors of the expected-value functions for a file that must be refused.
BROKEN = (AssertionError, KeyError, ValueError, RecursionError)


def place(document, answer):
    start = TEXTS[document].index(answer)
    return {"answer": answer, "start": start, "end": start + len(answer)}


def squad():
    asked = {
        f"q{row}": (question, document, answer)
        for row, (document, question, answer) in enumerate(ASKED)
    }
    return {
        "data": [
            {"paragraphs": article["paragraphs"]} for article in build_squad(TEXTS, asked)["data"]
        ]
    }


def lines():
    return [
        {
            "id": f"q{row}",
            "document": document,
            "context": TEXTS[document],
            "question": question,
            **place(document, answer),
        }
        for row, (document, question, answer) in enumerate(ASKED)
    ]


def beir():
    """The questions as the files of a BEIR folder; the first two state a span themselves."""
    spans = [place(document, answer) for document, _, answer in ASKED]
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


# Changes.


def paths(value, before=()):
    if before:
        yield before
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from paths(inner, (*before, key))


def value_at(value, way):
    for key in way:
        value = value[key]
    return value


@st.composite
def changed(draw, make, values=VALUES):
    """A value with up to three fields replaced, removed, repeated or, if integers, shifted
    slightly.
    """
    value = make()
    for _ in range(draw(st.integers(0, 3))):
        numbers = [way for way in paths(value) if type(value_at(value, way)) is int]
        *way, last = draw(
            st.sampled_from(numbers if numbers and draw(st.booleans()) else [*paths(value)])
        )
        holder = value_at(value, way)
        how = draw(st.sampled_from(["replace", "shift", "shift", "shift", "remove", "repeat"]))
        if type(holder[last]) is int and how == "shift":
            holder[last] += draw(st.integers(-8, 8))
        elif how == "repeat" and isinstance(holder, list):
            holder.insert(draw(st.integers(0, len(holder))), deepcopy(holder[last]))
        elif how == "remove":
            del holder[last]
        else:
            holder[last] = deepcopy(draw(st.sampled_from(values)))
        if not value:
            break
    return value


@st.composite
def encoded(draw, text):
    """A text as bytes, sometimes truncated or in another encoding."""
    encoding = draw(st.sampled_from([*["utf-8"] * 6, "utf-8-sig", "utf-16", "latin-1"]))
    content = text.encode(encoding, "replace" if encoding == "latin-1" else "surrogatepass")
    return content[: int(len(content) * draw(st.sampled_from([*[1.0] * 8, 0.0, 0.5, 0.97])))]


def json_lines_text(records, *, escape):
    return "".join(json.dumps(record, ensure_ascii=escape) + "\n" for record in records)


# What files state, by an independent implementation of the rules.


def expected_span(text, answer, start, end, *, repair):
    """Start and end of an answer, None if the question must be skipped."""

    def places(match, near, distance):
        return [
            at
            for at in range(len(text))
            if abs(at - near) <= distance and text.startswith(match, at)
        ]

    if answer is not None and not answer.strip():
        return None
    if start is None:
        result = places(answer, 0, len(text)) if answer is not None and end is None else []
        return (result[0], result[0] + len(answer)) if len(result) == 1 else None
    if answer is None:
        return (
            (start, end)
            if end is not None and 0 <= start < end <= len(text) and text[start:end].strip()
            else None
        )
    if start in places(answer, start, 0) and end in (None, start + len(answer)):
        return start, start + len(answer)
    for match, at in (
        ((answer, start), (answer.strip(), start + answer.index(answer.strip()))) if repair else ()
    ):
        result = places(match, at, 5)
        if result:
            return (result[0], result[0] + len(match)) if len(result) == 1 else None
    return None


def require(record, name, *kinds):
    """A field of one of these types; a text must be encodable."""
    assert isinstance(record, dict)
    value = record.get(name)
    assert type(value) in kinds
    assert not isinstance(value, str) or value.encode() is not None
    return value


NONE, MALFORMED = type(None), object()


def unless_malformed(record, name, *kinds, otherwise=None):
    try:
        return require(record, name, *kinds)
    except (AssertionError, ValueError):
        return otherwise


def usable(value, kind):
    return value is None or (
        type(value) is kind
        and (kind is not str or not any("\ud800" <= c <= "\udfff" for c in value))
    )


def expected_squad(content, *, repair):
    """Question, document and evidence of everything that must be imported."""
    said = {}
    # Strictly, where json.loads takes surrogates in UTF-8.
    value = json.loads(content.decode(json.detect_encoding(content)))
    for article in value if isinstance(value, list) else require(value, "data", list):
        # What is malformed is left out, and the rest is read.
        for paragraph in unless_malformed(article, "paragraphs", list) or ():
            text, asked = (
                unless_malformed(paragraph, *part) for part in (("context", str), ("qas", list))
            )
            if text is None or asked is None:
                continue
            assert text.strip()
            for number, qa in enumerate(asked):
                question = unless_malformed(qa, "question", str)
                if (
                    question is None
                    or unless_malformed(qa, "id", int, str, NONE, otherwise=MALFORMED) is MALFORMED
                ):
                    continue
                given, answers = qa.get("id"), qa.get("answers")
                answer = answers[0] if isinstance(answers, list) and answers else None
                words, start = (
                    (answer.get("text"), answer.get("answer_start"))
                    if isinstance(answer, dict)
                    else (None, None)
                )
                if (
                    not question.strip()
                    or type(start) is not int
                    or words is None
                    or not usable(words, str)
                ):
                    continue
                span = expected_span(text, words, start, None, repair=repair)
                if span:
                    name = (id(paragraph), number) if given in (None, "") else str(given)
                    said[text, name, question, span] = (question, text, text[slice(*span)])
    return list(said.values())


def read_lines(content):
    """The lines of UTF-16 with its mark, or those of UTF-8 that can be decoded."""
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
    documents, queries, said, numbered = {}, set(), [], {}
    for number, record in enumerate(read_records(content)):
        text, question = require(record, "context", str), require(record, "question", str, NONE)
        assert text.strip()
        require(record, "title", str, NONE)
        given, own = (require(record, name, int, str, NONE) for name in ("id", "document"))
        name = (
            str(own)
            if own not in (None, "")
            else numbered.setdefault(text, f"sports_{len(documents)}")
        )
        assert documents.setdefault(name, text) == text
        kinds = {"answer": str, "start": int, "end": int, "answers": dict}
        if (
            question is None
            or not question.strip()
            or not all(usable(record.get(key), kind) for key, kind in kinds.items())
        ):
            continue
        if record.get("answers") is not None:
            continue
        span = expected_span(
            text, *(record.get(key) for key in ("answer", "start", "end")), repair=repair
        )
        if span:
            # Questions that share an id are told apart by their content.
            key = number if given in (None, "") else (str(given), question, name, span)
            if key not in queries:
                said.append((question, text, text[slice(*span)]))
            queries.add(key)
    return said


@pytest.mark.parametrize(
    ("make", "write", "read", "expected"),
    [
        (
            squad,
            lambda value, escape: json.dumps(value, ensure_ascii=escape),
            read_squad_json,
            expected_squad,
        ),
        (
            lines,
            lambda value, escape: json_lines_text(value, escape=escape),
            read_json_lines,
            expected_lines,
        ),
    ],
    ids=["squad", "lines"],
)
@given(data=st.data(), escape=st.booleans(), repair=st.booleans())
def test_mutated_files(make, write, read, expected, data, escape, repair):
    """What is read back is what the files state; invalid or empty files are refused and named; any
    other error is a failure.
    """
    content = data.draw(encoded(write(data.draw(changed(make)), escape)))
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "a.json"
        file.write_bytes(content)
        try:
            said = expected(content, repair=repair)
        except BROKEN:
            said = []
        output = Path(name) / "out"
        try:
            result, refusal = imported(read(file), output, repair=repair), ""
        except DataError as error:
            result, refusal = None, str(error)
        assert (result is None) == (not said), refusal
        if result is None:
            assert name in refusal or refusal.startswith(
                "There is no question with a usable answer"
            )
            assert not output.exists()
        else:
            assert read_back(output) == said
            assert repair or not result.repaired


@given(
    st.data(),
    changed(lambda: beir()["corpus"]),
    changed(lambda: beir()["queries"]),
    changed(lambda: beir()["qrels"], CELLS),
    st.lists(
        st.tuples(
            *map(st.sampled_from, (["q1", "q9"], ["d0", "d1"], ["0", "1"], ["", "9"], ["", "12"]))
        ),
        max_size=2,
    ),
    st.booleans(),
)
def test_mutated_beir_folders(data, corpus, queries, qrels, more, repair):
    contents = {
        "corpus.jsonl": data.draw(encoded(json_lines_text(corpus, escape=True))),
        "queries.jsonl": data.draw(encoded(json_lines_text(queries, escape=True))),
        "qrels/test.tsv": "".join(
            "\t".join(row) + "\n" for row in [*qrels, *more] if not isinstance(row, str)
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
            refusal = str(error)
        else:
            texts, asked = (
                {row["text"] for row in read_records(contents[file])} for file in list(contents)[:2]
            )
            read = [
                (query in asked, text in texts, bool(evidence.strip()))
                for query, text, evidence in read_back(output)
            ]
            assert {*read} == {(True, True, True)}
            return
        assert name in refusal or refusal.startswith("There is no question with a usable answer")
        assert not output.exists()

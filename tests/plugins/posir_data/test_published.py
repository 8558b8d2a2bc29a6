"""Tests for reading published datasets with spans, from files with the published layouts."""

import gzip
import io
import json
import tarfile

import mteb
import polars as pl
import pytest
from datasets import Dataset

import posir
from posir_score.evidence_spans import read_evidence_data
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.data.formats.passages import Cause
from posir_tasks.data.questions import collect_questions
from posir_tasks.datasets.opening import open_data
from posir_tasks.tasks.catalog import load_builtin_tasks

TELUGU = "\nసూర్యుడు ఒక నక్షత్రం. 1869 లో పుట్టాడు. అవును."
ARABIC = "\nفاز الفريق ببطولتين في 1999."


def write(path, content):
    """Write text, JSON, JSON Lines or Parquet, according to the suffix; compress `.gz` files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pl.DataFrame(content).write_parquet(path)
        return path
    if path.suffix != ".json" and isinstance(content, list):
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
    content = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return path


def read(source, **options):
    """Return each query's evidence, the number of skipped questions by reason, and the data."""
    (subset,) = open_data(source, **options).subsets
    data = collect_questions(subset.read_passages(), "published", repair=False)
    places = {}
    for name, (_, document, span) in data.questions.items():
        if name not in data.unpositioned:
            query = data.places[name].query if name in data.places else name
            places.setdefault(query, []).append(span.slice(data.documents[document]))
    reasons = {}
    for skipped in dict.fromkeys(item for item in (*data.skipped, *data.unpositioned.values())):
        reasons[skipped.detail or skipped.reason] = (
            reasons.get(skipped.detail or skipped.reason, 0) + skipped.number
        )
    return places, reasons, data


def find_bytes(text, part):
    start = text.encode().index(part.encode())
    return start, start + len(part.encode())


def make_tydi_row(number, text, annotations, language="telugu", url="u1", **others):
    """Make a row of the primary task. `annotations` are pairs of a candidate index and a minimal
    answer or None.
    """
    cut = text.index(".") + 1
    first, second = find_bytes(text, text[1:cut]), find_bytes(text, text[cut + 1 :])
    answers = [
        (candidate, find_bytes(text, part) if part else (-1, -1)) for candidate, part in annotations
    ]
    return {
        "example_id": number,
        "language": language,
        "document_title": "T",
        "document_url": url,
        "question_text": f"{number}?",
        "document_plaintext": text,
        "passage_answer_candidates": [
            {"plaintext_start_byte": a, "plaintext_end_byte": b} for a, b in (first, second)
        ],
        "annotations": [
            {
                "annotation_id": 1,
                "passage_answer": {"candidate_index": candidate},
                "yes_no_answer": "NONE",
                "minimal_answer": {"plaintext_start_byte": start, "plaintext_end_byte": end},
            }
            for candidate, (start, end) in answers
        ],
    } | others


NULL = (-1, None)


def test_tydi_qa(tmp_path):
    """Covers byte offsets, disagreeing annotators, passages without a minimal answer, and articles
    of unanswerable questions.
    """
    assert find_bytes(TELUGU, "1869")[0] > len(TELUGU)
    rows = [
        make_tydi_row(1, TELUGU, [(1, "1869"), (1, "1869"), NULL]),
        make_tydi_row(2, TELUGU, [(1, "1869"), NULL, NULL]),
        make_tydi_row(3, TELUGU, [NULL, NULL, NULL], url="u2"),
        make_tydi_row(4, TELUGU, [(0, "నక్షత్రం"), (1, None), NULL]),
        make_tydi_row(5, TELUGU, [(0, "నక్షత్రం")]),
        make_tydi_row(6, "\nమరొక. 1869.", [(1, "1869")]),
        make_tydi_row(7, "\nమరొక. 1870.", [(1, "1870")]),
        make_tydi_row(8, ARABIC, [(0, "ببطولتين")], language="arabic", url="u3"),
    ]
    split_character = make_tydi_row(9, TELUGU, [(0, "నక్షత్రం")])
    split_character["annotations"][0]["minimal_answer"]["plaintext_end_byte"] -= 1
    beyond_end = make_tydi_row(10, TELUGU, [(0, None)])
    beyond_end["passage_answer_candidates"][0]["plaintext_end_byte"] = 10_000
    file = write(tmp_path / "tydiqa-v1.0-dev.jsonl.gz", [*rows, split_character, beyond_end])
    places, reasons, data = read(file, language="tel-Telu")
    passage = TELUGU[TELUGU.index(".") + 2 :]
    assert places == {"1": ["1869"], "4": ["నక్షత్రం", passage], "5": ["నక్షత్రం"], "6": ["1869"]}
    assert reasons == {
        Cause.DISAGREEMENT: 1,
        Cause.UNANSWERABLE: 1,
        Cause.REVISED: 1,
        "its byte span splits a character": 1,
        "its byte span is not within its document": 1,
    }
    assert list(data.documents.values()) == [TELUGU] * 2
    assert read(file, language="ara-Arab")[0] == {"8": ["ببطولتين"]}
    evidence_data = read_evidence_data(open_data(file, language="tel-Telu"))
    texts = evidence_data.documents
    located = [
        [row.span.slice(texts[row.document]) for row in spans]
        for _, spans in evidence_data.questions
    ]
    assert located == [["1869"], ["నక్షత్రం", passage], ["నక్షత్రం"], ["1869"]]


def test_damaged_files_are_skipped(tmp_path):
    write(tmp_path / "a.jsonl", [{"text": "The mill burned down."}])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"{" * 10_000)[:20])
    data = open_data(tmp_path)
    assert [row["text"] for row in data.rows] == ["The mill burned down."]
    assert len(data.skipped) == 1


def test_tydi_qa_from_the_hub(tmp_path):
    start, end = find_bytes(ARABIC, "ببطولتين")
    row = {
        "language": "arabic",
        "document_title": "T",
        "document_url": "u",
        "question_text": "?",
        "document_plaintext": ARABIC,
        "passage_answer_candidates": {
            "plaintext_start_byte": [1],
            "plaintext_end_byte": [len(ARABIC.encode())],
        },
        "annotations": {
            "passage_answer_candidate_index": [0, -1, 0],
            "minimal_answers_start_byte": [start, -1, start],
            "minimal_answers_end_byte": [end, -1, end],
            "yes_no_answer": ["NONE"] * 3,
        },
    }
    assert list(read(write(tmp_path / "train-0.parquet", [row]))[0].values()) == [["ببطولتين"]]


def write_miracl(folder, passages, qrels, language="sw"):
    root = folder / f"miracl-v1.0-{language}"
    queries = dict.fromkeys(row.split()[0] for row in qrels)
    write(
        root / f"topics/topics.miracl-v1.0-{language}-dev.tsv",
        "".join(f"{name}\t{name}? \n" for name in queries),
    )
    write(
        root / f"qrels/qrels.miracl-v1.0-{language}-dev.tsv",
        "\n".join(row.replace(" ", "\t") for row in qrels),
    )
    rows = [{"docid": name, "title": "Title", "text": text} for name, text in passages.items()]
    write(folder / f"miracl-corpus-v1.0-{language}/docs-0.jsonl.gz", rows)
    return folder


def test_miracl_joins_articles(tmp_path):
    """Passages are joined in the order of the integer after `#`. Short articles have no position
    but stay in the corpus.
    """
    long = {f"39#{number}": f"Sehemu ya {number}." for number in (10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9)}
    short = {"7#0": "Fupi.", "7#1": "Sana.", "8#0": "n" * 2047, "8#1": "mwisho"}
    qrels = [
        "a Q0 39#10 1",
        "a Q0 39#2 0",
        "b Q0 39#2 1",
        "b Q0 8#1 1",
        "c Q0 7#0 1",
        "d Q0 7#0 0",
        "e Q0 5#0 1",
    ]
    places, reasons, data = read(write_miracl(tmp_path, long | short, qrels))
    assert places == {"a": ["Sehemu ya 10."], "b": ["Sehemu ya 2.", "mwisho"]}
    assert data.documents["39"] == "\n\n".join(f"Sehemu ya {number}." for number in range(11))
    assert [*data.documents] == ["39", "7", "8"]
    assert data.questions["a"][2] == (10 * 14, 10 * 14 + 13)
    assert data.titles["39"] == "Title"
    assert reasons == {
        Cause.SHORT: 1,
        Cause.NOT_RELEVANT: 1,
        Cause.NO_PASSAGE: 1,
    }


def test_large_miracl_corpora_are_sampled(tmp_path):
    passages = {
        f"{article}#{number}": f"{article} {number}"
        for article in range(400)
        for number in range(4)
    }
    folder = write_miracl(tmp_path, passages, ["a Q0 39#3 1", "a Q0 40#0 0"], language="ru")
    _, reasons, data = read(folder, language="rus-Cyrl")
    assert {"39", "40"} <= data.documents.keys()
    # Expect 398 / 16 documents, within four standard deviations.
    assert 5 <= len(data.documents) - 2 <= 45
    assert reasons == {
        "passages of articles that are neither judged nor in the seeded sample of 1 in 16": 4
        * (400 - len(data.documents))
    }
    with pytest.raises(DataError, match="MIRACL in ru"):
        read(folder, language="tel-Telu")
    write_miracl(tmp_path, passages, ["a Q0 39#3 1", "a Q0 39#2 x"], language="ru")
    with pytest.raises(DataError, match=r"qrels.*query a, document 39#2: grade 'x'"):
        read(folder)


NOT_A_TAG = (
    "its long answer does not begin with a tag: the page must have the tokens of the release, "
    "separated by single spaces"
)
NQ_TOKENS = "<H1> Google </H1> <P> It was founded by Page . </P>"
NQ_TOKENS += ' <Table> <Tr> <Td_colspan="2"> CEO </Td> <Td> a\u180eb </Td> </Tr> </Table>'
LONG, TABLE, WHOLE_TEXT = (3, 10), (10, 19), "Google\nIt was founded by Page .\nCEO\na\u180eb"


def make_nq_row(
    form, number, boxes, tokens=NQ_TOKENS, url="https://w/index.php?title=Google&oldid=1"
):
    """Make a row in one of three formats. `boxes` are the annotators' long answers in tokens, or
    None.
    """
    spans = [box or (-1, -1) for box in boxes]
    answers = [
        {"start_token": start, "end_token": end, "candidate_index": -1 if start < 0 else 0}
        for start, end in spans
    ]
    split = tokens.split(" ")
    if form == "hub":
        flags = [token.startswith("<") for token in split]
        return {
            "id": str(number),
            "document": {
                "title": "Google",
                "url": url,
                "html": "",
                "tokens": {"token": split, "is_html": flags},
            },
            "question": {"text": "who founded google", "tokens": ["who"]},
            "long_answer_candidates": {"start_token": [3]},
            "annotations": {
                "id": ["1"] * len(spans),
                "long_answer": answers,
                "yes_no_answer": [-1] * len(spans),
            },
        }
    row = {
        "example_id": number,
        "question_text": "who founded google",
        "document_url": url,
        "long_answer_candidates": [],
        "annotations": [
            {"annotation_id": 1, "long_answer": row, "yes_no_answer": "NONE"} for row in answers
        ],
    }
    if form == "simplified":
        return row | {"document_text": tokens}
    # In the original format, tags contain spaces.
    tokens_with_flags = [(token.replace("_", " "), token.startswith("<")) for token in split]
    document_tokens = [
        {"token": token, "start_byte": 0, "end_byte": 1, "html_token": is_html}
        for token, is_html in tokens_with_flags
    ]
    return row | {
        "document_title": "Google",
        "document_html": "",
        "document_tokens": document_tokens,
    }


@pytest.mark.parametrize(
    ("form", "name"),
    [("original", "nq-dev-00.jsonl.gz"), ("simplified", "v1.0.jsonl"), ("hub", "a.parquet")],
)
def test_natural_questions(tmp_path, form, name):
    rows = [
        make_nq_row(form, 1, [LONG, LONG, TABLE, None, None]),
        make_nq_row(form, 2, [LONG, None, None, None, None]),
        make_nq_row(form, 3, [TABLE]),
        make_nq_row(form, 4, [None], url="https://w/index.php?title=Other"),
        make_nq_row(
            form,
            5,
            [LONG],
            NQ_TOKENS.replace("Google", "Alphabet"),
            "https://w/index.php?title=Google&oldid=2",
        ),
        make_nq_row(form, 6, [(4, 10)]),
    ]
    file = write(tmp_path / name, rows)
    places, reasons, data = read(file, split="paragraph")
    paragraph = "It was founded by Page ."
    assert places == {"5": [paragraph]}
    assert reasons == {
        "fewer than 2 of its annotators gave an answer": 1,
        Cause.OTHER_SPLIT: 2,
        "has no answer": 1,
        NOT_A_TAG: 1,
        "near-duplicates of another page, with its text, title or first words": 1,
    }
    assert [*data.documents.values()] == [WHOLE_TEXT]
    assert read(tmp_path, split="other")[0] == {
        "1": [paragraph, table := "CEO\na\u180eb"],
        "3": [table],
    }
    with pytest.raises(DataError, match="other, paragraph"):
        read(file, split="dev")


def test_near_duplicate_pages_are_skipped(tmp_path):
    """Both pages start with the same 200 words. The kept page answers two of the three
    questions about the copy.
    """
    opening = " ".join(f"w{number}" for number in range(200))
    pages = [
        f"<P> {opening} </P> <P> It was {part} . </P>"
        for part in ("founded here", "founded here . But sold")
    ]
    questions = enumerate([(0, (202, 208)), (1, (202, 208)), (1, (202, 211)), (1, (0, 202))])
    rows = [
        make_nq_row("simplified", number, [box], pages[page], f"https://w/{page}")
        for number, (page, box) in questions
    ]
    places, reasons, data = read(write(tmp_path / "v1.0.jsonl", rows))
    assert places == {
        "0": ["It was founded here ."],
        "1": ["It was founded here ."],
        "3": [opening],
    }
    assert list(reasons.values()) == [1, 1]
    assert len(data.documents) == 1


def test_wrong_tokenization_is_one_cause(tmp_path):
    """In the release, `<P>` is two tokens later: two words are followed by double spaces, which
    `split()` drops.
    """
    tokens = "Google and more <P> It was founded . </P>"
    for box, reason in (((5, 11), "its long answer is not within its page"), ((5, 8), NOT_A_TAG)):
        rows = [make_nq_row("simplified", number, [box], tokens) for number in range(3)]
        assert read(write(tmp_path / "v1.0.jsonl", rows))[:2] == ({}, {reason: 3})


REPLIQA = "The “harbour” was re-\npaired  in\nMay. It is deep. It is deep."


def test_repliqa(tmp_path):
    """Paragraphs are located if they match exactly or after normalization, and only once.
    Unanswerable questions are skipped.
    """
    long_answers = {
        "q1": "It is deep. It is deep.",
        "q2": 'The "harbour" was repaired in May.',
        "q3": "It is deep.",
        "q4": "It is wide.",
        "q5": "NA",
    }
    rows = [
        {
            "document_id": "d",
            "document_topic": "t",
            "document_path": "p",
            "document_extracted": REPLIQA,
            "question_id": name,
            "question": f"{name}?",
            "answer": "UNANSWERABLE" if text == "NA" else "a",
            "long_answer": text,
        }
        for name, text in long_answers.items()
    ]
    file = write(tmp_path / "repliqa_0-00000-of-00001.parquet", rows)
    places, reasons, data = read(file)
    assert places == {
        "q1": ["It is deep. It is deep."],
        "q2": ["The “harbour” was re-\npaired  in\nMay."],
    }
    assert reasons == {
        "its evidence is several times in its document": 1,
        "its evidence is not in its document": 1,
        "has no answer": 1,
    }
    assert [*data.documents] == ["repliqa_0/d"]


MARCO = "Zoë 👩‍🚀 flew. She landed in 1999. She slept. She woke."


def make_marco_rows(texts, passages):
    docs = [
        {"url": "u", "title": "t", "headings": "", "body": body, "docid": f"msmarco_doc_00_{key}"}
        for key, body in texts.items()
    ]
    rows = []
    for key, (doc, sentences) in passages.items():
        pairs = ",".join("({},{})".format(*find_bytes(texts[doc], part)) for part in sentences)
        rows.append(
            {
                "pid": f"msmarco_passage_00_{key}",
                "passage": "",
                "spans": pairs,
                "docid": f"msmarco_doc_00_{doc}",
            }
        )
    return docs, rows


@pytest.mark.parametrize("packed", [True, False])
def test_ms_marco(tmp_path, packed):
    """Passages are located by byte offsets, equal bodies are one document, and unjudged documents
    are sampled.
    """
    texts = {1: MARCO, 2: MARCO, 3: "Another text."} | {
        number: f"Unjudged {number}." for number in range(100, 500)
    }
    parts = {
        1: (1, ["Zoë 👩‍🚀 flew.", "She landed in 1999."]),
        2: (2, ["She slept."]),
        3: (3, ["Another text."]),
        4: (3, ["text"]),
    }
    for kind, rows in zip(("doc", "passage"), make_marco_rows(texts, parts), strict=True):
        name = f"msmarco_{kind}_00.gz"
        file = write(tmp_path / f"msmarco_v2_{kind}" / name, rows)
        if packed:
            with tarfile.open(tmp_path / f"msmarco_v2_{kind}.tar", "w") as archive:
                content = file.read_bytes()
                member = tarfile.TarInfo(f"msmarco_v2_{kind}/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            file.unlink()
    rated = ["1 1 3", "1 2 2", "1 2 2", "2 3 2", "2 4 1", "3 4 1", "4 9 3"]
    qrels = [
        f"{query} Q0 msmarco_passage_00_{passage} {rating}"
        for query, passage, rating in map(str.split, rated)
    ]
    write(tmp_path / "2021.qrels.pass.final.txt", "\n".join(qrels))
    write(tmp_path / "2021_queries.tsv", "".join(f"{name}\tq {name}\n" for name in "1234"))
    places, reasons, data = read(tmp_path)
    assert places == {
        "1": ["Zoë 👩‍🚀 flew. She landed in 1999.", "She slept."],
        "2": ["Another text."],
    }
    assert [place.grade for place in data.places.values()] == [3, 3]
    judged = {"msmarco_doc_00_1", "msmarco_doc_00_3"}
    assert judged <= data.documents.keys()
    assert 0 < (sampled := len(data.documents) - 2) < 20
    assert reasons == {
        "documents that are neither judged nor in the seeded sample of 1 in 64": 400 - sampled,
        Cause.NOT_RELEVANT: 1,
        Cause.NO_PASSAGE: 1,
    }


def test_a_damaged_archive_raises(tmp_path):
    for name in ("doc", "passage"):
        write(tmp_path / f"msmarco_v2_{name}.tar", "no archive")
    write(tmp_path / "2021.qrels.pass.final.txt", "1 Q0 msmarco_passage_00_1 3")
    write(tmp_path / "2021_queries.tsv", "1\tq")
    with pytest.raises(DataError, match=r"msmarco_v2_passage\.tar: is not a complete archive"):
        read(tmp_path)


def test_bright(tmp_path):
    long = {"a/b.txt": "First part. Second part. Third part. Third part.", "c.txt": "Fourth part."}
    short = {
        "a/b.txt_0": "First part.",
        "a/b.txt_1": "Second part.",
        "a/b.txt_2": "Third part.",
        "c.txt_0": "Fourth part.",
    }
    gold = {
        "1": ["a/b.txt_1", "c.txt_0"],
        "2": ["a/b.txt_2"],
        "3": ["a/b.txt_0"],
        "4": ["a/b.txt_9"],
    }
    for part, texts in (("documents", short), ("long_documents", long)):
        rows = [{"id": name, "content": text} for name, text in texts.items()]
        write(tmp_path / part / "biology-00000-of-00001.parquet", rows)
    rows = [
        {
            "query": f"q {name}",
            "reasoning": "",
            "id": name,
            "excluded_ids": ["c.txt_0" if name == "3" else "N/A"],
            "gold_ids_long": [*dict.fromkeys(key.rpartition("_")[0] for key in keys)],
            "gold_ids": keys,
        }
        for name, keys in gold.items()
    ]
    write(tmp_path / "examples/biology-00000-of-00001.parquet", rows)
    places, reasons, data = read(tmp_path)
    assert places == {"1": ["Second part.", "Fourth part."]}
    assert sorted(reasons) == [
        Cause.EXCLUDING,
        Cause.NO_PASSAGE,
        "its evidence is several times in its document",
    ]
    assert data.documents == long
    with pytest.raises(DataError, match="biology"):
        read(tmp_path, split="law")


CONTRACT = (
    "This contract is between A and B.\r\n\r\nIt is governed by the law of Ohio.\r\nIt ends in "
    "May. It ends in June.\r\n"
)


def write_legalbench(folder):
    text = CONTRACT.replace("\r\n", "\n")
    snippets = []
    for answer in ("governed by the law of Ohio", "It ends in May."):
        start = text.index(answer)
        snippets.append(
            {"file_path": "cuad/A%20B.txt", "span": [start, start + len(answer)], "answer": answer}
        )
    wrong = snippets[0] | {"span": [3, 30]}
    tests = [
        {
            "query": "Consider the A-B Agreement; What is the law; and when?",
            "snippets": snippets,
            "tags": [],
        },
        {
            "query": "Consider the A-B Agreement; What else?",
            "snippets": [snippets[1], wrong],
            "tags": [],
        },
        {
            "query": "Consider the C Agreement; What?",
            "snippets": [snippets[0] | {"file_path": "cuad/C.txt"}],
            "tags": [],
        },
    ]
    write(folder / "benchmarks/cuad.json", {"tests": tests})
    write(folder / "corpus/cuad/A%20B.txt", CONTRACT)
    write(folder / "corpus/maud/D.txt", "The law of Ohio governs it.")
    return folder


def test_legalbench_rag(tmp_path):
    """CRLF counts as one character, document names are removed from queries, and spans are verified
    by their answers.
    """
    places, reasons, data = read(write_legalbench(tmp_path))
    assert places == {"cuad:0": ["governed by the law of Ohio", "It ends in May."]}
    assert data.questions["cuad:0"][0] == "What is the law; and when?"
    assert [*data.documents] == ["cuad/A%20B.txt", "maud/D.txt"]
    assert {reason.split("'")[0] for reason in reasons} == {
        "has several places of evidence, one of which is unknown",
        "its answer ",
        "its relevant document ",
    }


def write_cuad(folder):
    text = CONTRACT.replace("\r\n", "\n")
    answers = [
        {"text": part, "answer_start": text.index(part)}
        for part in ("It ends in May.", "It ends in June.")
    ]
    template = (
        'Highlight the parts (if any) of this contract related to "{}" that should be reviewed by '
        "a lawyer."
    )
    qas = [
        {
            "id": "A__Term",
            "question": template.format("Term"),
            "answers": answers,
            "is_impossible": False,
        },
        {"id": "A__Law", "question": template.format("Law"), "answers": [], "is_impossible": True},
    ]
    paragraphs = [{"title": "A", "paragraphs": [{"qas": qas, "context": text}]}]
    # Another contract repeats the question.
    paragraphs.append(
        {
            "title": "C",
            "paragraphs": [{"qas": [], "context": template.format("Term") + "\n\nTerm."}],
        }
    )
    return write(folder / "CUADv1.json", {"version": "aok_v1.0", "data": paragraphs})


def write_cuad_rows(folder):
    """Write the format of the Hub: a row for each question, with its contract and lists of
    answers.
    """
    (paragraph,) = json.loads((file := write_cuad(folder)).read_text())["data"][0]["paragraphs"]
    file.unlink()
    rows = [
        {
            "id": qa["id"],
            "title": "A",
            "context": paragraph["context"],
            "question": qa["question"],
            "answers": {
                field: [answer[field] for answer in qa["answers"]]
                for field in ("text", "answer_start")
            },
        }
        for qa in paragraph["qas"]
    ]
    return write(folder / "data/train-00000-of-00001.parquet", rows).parents[1]


@pytest.mark.parametrize("write_source", [write_cuad, write_cuad_rows])
def test_cuad(tmp_path, write_source):
    places, reasons, _ = read(write_source(tmp_path))
    assert places == {"A__Term": ["It ends in May.", "It ends in June."]}
    assert reasons == {"has no answer": 1}


def test_cuad_from_the_hub_is_searched_within_documents(tmp_path, monkeypatch):
    rows = pl.read_parquet(
        write_cuad_rows(tmp_path) / "data/train-00000-of-00001.parquet"
    ).to_dicts()
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: Dataset.from_list(rows))
    opened = open_data("theatticusproject/cuad-qa", revision="6" * 40)
    with pytest.raises(PosirError, match="this contract"):
        opened.require_corpus()
    assert [row["query_id"] for row in opened.rows] == ["A__Term", "A__Term#2"]


@pytest.mark.parametrize("write_source", [write_cuad, write_cuad_rows, write_legalbench])
def test_questions_about_one_document_cannot_be_asked_of_a_corpus(tmp_path, write_source):
    source, reason = (
        write_source(tmp_path),
        "name their document" if write_source is write_legalbench else "this contract",
    )
    with pytest.raises(PosirError, match=f"{reason}.*posir score --model"):
        posir.import_data(source, language="eng-Latn", domain="contracts", output=tmp_path / "out")
    with pytest.raises(PosirError, match=reason):
        posir.score({"A__Term": {"d": 1.0}}, data=source)
    assert not (tmp_path / "out").exists()


def split_paragraphs(text):
    return text.split("\n\n")


def test_chunks_are_ranked_within_the_document(tmp_path):
    """The other contract repeats the question. Only the two chunks of the question's own contract
    are retrieved.
    """
    scored = posir.score(
        model="mteb/baseline-random-encoder",
        chunker=split_paragraphs,
        data=write_cuad(tmp_path),
        k=3,
    )
    (row,) = [row for row in scored.rows if row.document == "all"]
    evidence_length, contract_length = (
        len("It ends in May.It ends in June."),
        len(CONTRACT.replace("\r\n", "\n")) - 2,
    )
    assert row.recall.value == 1
    assert row.precision.value == pytest.approx(evidence_length / contract_length)


TASKS = ("TyDiQA-PosIR", "MIRACL-PosIR", "RepLiQA-PosIR", "NQ-PosIR")


@pytest.mark.parametrize("name", TASKS)
def test_tasks_without_data_raise_with_instructions(name, tmp_path, monkeypatch):
    task = load_builtin_tasks()[name]
    metadata = task.metadata
    assert metadata.license
    assert metadata.bibtex_citation
    assert metadata.dataset["revision"] == ("d921ec7" if name == "MIRACL-PosIR" else "not pinned")
    for folder in (None, str(tmp_path)):
        monkeypatch.delenv("POSIR_DATA", raising=False) if folder is None else monkeypatch.setenv(
            "POSIR_DATA", folder
        )
        with pytest.raises(
            DataError, match=f"{metadata.license}.*posir import .*--output data/{name}"
        ):
            task().load_data()


def test_tasks_evaluate_only_imported_languages(tmp_path, monkeypatch):
    rows = [
        make_tydi_row(1, TELUGU, [(1, "1869")]),
        make_tydi_row(2, TELUGU, [(0, "నక్షత్రం"), (1, "1869")]),
        make_tydi_row(3, ARABIC, [(0, "ببطولتين")], language="arabic", url="u3"),
    ]
    file = write(tmp_path / "train.jsonl.gz", rows)
    output = tmp_path / "data/TyDiQA-PosIR"
    for language in ("tel-Telu", "ara-Arab"):
        posir.import_data(file, language=language, domain="tydiqa", output=output)
    monkeypatch.setenv("POSIR_DATA", str(tmp_path / "data"))
    task = mteb.get_task("TyDiQA-PosIR")
    model = mteb.get_model("mteb/baseline-random-encoder")
    result = mteb.evaluate(
        model, task, cache=None, co2_tracker=False, show_progress_bar=False
    ).task_results[0]
    scores = {row["hf_subset"]: row for row in result.scores["test"]}
    assert set(scores) == {"tel-Telu", "ara-Arab"}
    assert result.dataset_revision.startswith("local-")
    # Each language has one document, which is always retrieved.
    assert [scores[subset]["ndcg_at_10"] for subset in sorted(scores)] == [1, 1]
    assert len(task.read_subset("tel-Telu").places) == 2
    assert len(task.list_missing_subsets()) == 9

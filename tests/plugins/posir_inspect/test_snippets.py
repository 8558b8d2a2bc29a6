"""Code of `--snippet`: it makes the chunks that were measured."""

import subprocess
import sys
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

import posir
from posir_inspect.inspection import InspectionInput, inspect_model
from posir_inspect.snippets import Snippet, SnippetKind, require_tokenizer, write_snippet
from posir_tasks.base.errors import PosirError
from posir_tasks.models.embeddings.encoding import ModelEncoder
from posir_tasks.search.chunked import Chunker
from posir_tasks.text.chunks import Chunking
from posir_tasks.text.tokenizer import ModelTokenizer
from tests.plugins.posir_inspect.test_questions import collect
from tests.support.models import write_tiny_model
from tests.support.probed_encoders import FirstWords, invent_texts

TEXTS = [
    *invent_texts(3, 12),
    "",
    "one",
    "Ünï çödé \u4f60\u597d, double  blanks\r\n and \u200bmarks. " * 9,
]
#: Documents of each library, and its chunks of them, after the code of a snippet.
USES = {
    "langchain": "chunks = [[c.page_content for c in splitter.create_documents([t])] for t in "
    "texts]",
    "llamaindex": """from llama_index.core import Document
chunks = [[n.text for n in splitter.get_nodes_from_documents([Document(text=t)])] for t in texts]""",  # noqa: E501
    "haystack": """from haystack import Document
chunks = [[d.content for d in splitter.run(documents=[Document(content=t)])["documents"]] for t in texts]""",  # noqa: E501
}
PACKAGES = {
    "langchain": "langchain-text-splitters",
    "llamaindex": "llama-index-core",
    "haystack": "haystack-ai",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def advise(size, *, chunker=None, decided=True, model="org/m"):
    row = SimpleNamespace(size=size, chunker=chunker)
    return SimpleNamespace(
        row=row,
        is_decided=decided,
        chunked_model=f"{model}+chunks({size})" if size and decided else None,
    )


def write(kind, folder, size=16, texts=("one two three four " * 5,), tokens=10, **options):
    return write_snippet(
        kind, advise(size, **options), ModelTokenizer.load(str(folder)), "COSINE", texts, tokens
    )


def measure_chunks(folder, size):
    texts = [text for text in TEXTS if text.strip()]
    return texts, Chunker(Chunking(size), ModelTokenizer.load(str(folder))).split(texts, "eng-Latn")


@pytest.mark.parametrize("size", [7, 16])
def test_the_pasted_function_makes_the_chunks_that_are_measured(folder, size):
    code = write("langchain", folder, size).code
    names: dict = {}
    exec(
        code.partition("class ")[0].replace(
            "from langchain_text_splitters import TextSplitter\n", ""
        ),
        names,
    )
    texts, chunks = measure_chunks(folder, size)
    assert max(map(len, chunks)) > 3
    assert [names["split"](text) for text in texts] == chunks
    assert all(
        compile(write(kind, folder).code, kind, "exec")
        for kind in get_args(SnippetKind)
        if kind != "elasticsearch"
    )


def test_elasticsearch_has_the_size_in_words_of_the_texts(folder):
    snippet = write("elasticsearch", folder, 100, tokens=40)
    assert '"max_chunk_size": 50, "overlap": 25' in snippet.code
    assert all(
        part in snippet.sentence
        for part in ("Not tested", "not the measured chunks", "about 50 words")
    )
    assert '"max_chunk_size": 20' in write("elasticsearch", folder, 16, tokens=40).code


def test_without_an_advised_size_there_is_no_code(folder):
    for size, options in ((16, {"decided": False}), (None, {}), (None, {"chunker": "my:splitter"})):
        snippet = write("langchain", folder, size, **options)
        assert (snippet.code, str(options.get("chunker", "")) in snippet.sentence) == ("", True)
    with pytest.raises(PosirError, match="--chunker"):
        require_tokenizer("haystack", "m@http://x", None)
    require_tokenizer("qdrant", "m@http://x", None)


def test_an_inspection_shows_the_code_as_it_is():
    setup = InspectionInput(
        ModelEncoder(FirstWords(words=60)),
        None,
        collect(*invent_texts(30, 15)),
        None,
        snippet="qdrant",
    )
    inspection = inspect_model(setup)
    snippet = inspection.snippet
    assert isinstance(snippet, Snippet)
    assert inspection.document()["snippet"] is snippet
    assert "posir.open_model('" in snippet.code, inspection.chunks.sentences
    assert snippet.code in str(inspection) + "\n"
    assert f"```\n{snippet.code}```" in inspection.to_markdown()


@pytest.mark.slow
@pytest.mark.parametrize("kind", USES)
def test_a_splitter_of_the_library_makes_the_same_chunks(folder, tmp_path, kind):
    """In a throwaway environment, which sees the packages of this one."""
    texts, chunks = measure_chunks(folder, 16)
    python = build_environment(tmp_path / "venv", PACKAGES[kind])
    script = (
        f"{write(kind, folder).code}\ntexts = {texts!r}\n{USES[kind]}\nassert chunks == "
        f"{chunks!r}\n"
    )
    (tmp_path / "run.py").write_text(script)
    subprocess.run([python, tmp_path / "run.py"], check=True)


@pytest.mark.slow
def test_qdrant_groups_the_chunks_of_a_document(folder, tmp_path):
    model, documents = (
        f"{folder}+chunks(16)",
        {f"d{row}": text for row, text in enumerate(invent_texts(4, 12))},
    )
    code = write("qdrant", folder, 16, model=str(folder)).code.replace(
        '{"id": "text"}  # your documents', repr(documents)
    )
    (ranking,) = posir.open_model(model).search(["some words"], list(documents.values()))
    expected = [(f"d{row}", score) for row, score in ranking]
    python = build_environment(tmp_path / "venv", "qdrant-client")
    (tmp_path / "run.py").write_text(
        f"{code}\nimport json\nprint(json.dumps(search('some words')))\n"
    )
    printed = subprocess.run(
        [python, tmp_path / "run.py"], check=True, capture_output=True, text=True
    ).stdout
    names, scores = zip(*eval(printed.splitlines()[-1]), strict=True)
    assert list(names) == [name for name, _ in expected]
    assert np.allclose(scores, [score for _, score in expected], atol=1e-4)


def build_environment(folder, package):
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python, (site,) = folder / "bin" / "python", folder.glob("lib/*/site-packages")
    (site / "ours.pth").write_text("\n".join(path for path in sys.path if path))
    subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
    return python

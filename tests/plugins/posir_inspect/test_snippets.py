"""Run the code of `--snippet`, which produces the measured chunks."""

import subprocess
import sys
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

import posir
from posir_inspect.inspection import InspectionInput, inspect_model
from posir_inspect.snippets import Snippet, SnippetKind, check_tokenizer, write_snippet
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
#: Code that splits `texts` into `chunks` in each library, after the code of the snippet.
SPLIT_CODE = {
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


def build_comparison(size, *, chunker=None, is_decided=True, model="org/m"):
    return SimpleNamespace(
        selection=SimpleNamespace(size=size, chunker=chunker),
        is_decided=is_decided,
        chunked_model=f"{model}+chunks({size})" if size and is_decided else None,
    )


def write(kind, folder, size=16, tokens=10, **options):
    comparison = build_comparison(size, **options)
    tokenizer = ModelTokenizer.load(str(folder))
    texts = ["one two three four " * 5]
    return write_snippet(kind, comparison, tokenizer, "COSINE", texts, tokens)


def split_texts(folder, size):
    """Return the texts and the chunks that posir measures."""
    texts = [text for text in TEXTS if text.strip()]
    chunker = Chunker(Chunking(size), ModelTokenizer.load(str(folder)))
    return texts, chunker.split(texts, "eng-Latn")


@pytest.mark.parametrize("size", [7, 16])
def test_pasted_code_produces_the_measured_chunks(folder, size):
    code = write("langchain", folder, size).code
    names: dict = {}
    exec(
        code.partition("class ")[0].replace(
            "from langchain_text_splitters import TextSplitter\n", ""
        ),
        names,
    )
    texts, chunks = split_texts(folder, size)
    assert max(map(len, chunks)) > 3
    assert [names["split"](text) for text in texts] == chunks


@pytest.mark.parametrize(
    "kind", [kind for kind in get_args(SnippetKind) if kind != "elasticsearch"]
)
def test_code_is_valid_python(folder, kind):
    compile(write(kind, folder).code, kind, "exec")


def test_elasticsearch_size_is_in_words(folder):
    snippet = write("elasticsearch", folder, 100, tokens=40)
    assert '"max_chunk_size": 50, "overlap": 25' in snippet.code
    for phrase in ("Not tested", "not exactly the measured chunks", "about 50 words"):
        assert phrase in snippet.sentence
    assert '"max_chunk_size": 20' in write("elasticsearch", folder, 16, tokens=40).code


def test_no_code_without_a_recommended_size(folder):
    assert write("langchain", folder, 16, is_decided=False).code == ""
    assert write("langchain", folder, None).code == ""
    snippet = write("langchain", folder, None, chunker="my:splitter")
    assert snippet.code == ""
    assert "my:splitter" in snippet.sentence


def test_check_tokenizer():
    with pytest.raises(PosirError, match="--chunker"):
        check_tokenizer("haystack", "m@http://x", None)
    check_tokenizer("qdrant", "m@http://x", None)


def test_inspection_shows_the_code_verbatim():
    request = InspectionInput(
        ModelEncoder(FirstWords(words=60)),
        None,
        collect(*invent_texts(30, 15)),
        None,
        snippet="qdrant",
    )
    inspection = inspect_model(request)
    snippet = inspection.snippet
    assert isinstance(snippet, Snippet)
    assert inspection.document()["snippet"] is snippet
    assert "posir.open_model('" in snippet.code, inspection.chunks.sentences
    assert snippet.code in str(inspection) + "\n"
    assert f"```\n{snippet.code}```" in inspection.to_markdown()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPLIT_CODE)
def test_library_splitter_produces_the_same_chunks(folder, tmp_path, kind):
    texts, chunks = split_texts(folder, 16)
    python = build_environment(tmp_path / "venv", PACKAGES[kind])
    script = (
        f"{write(kind, folder).code}\ntexts = {texts!r}\n{SPLIT_CODE[kind]}\nassert chunks == "
        f"{chunks!r}\n"
    )
    (tmp_path / "run.py").write_text(script)
    subprocess.run([python, tmp_path / "run.py"], check=True)


@pytest.mark.slow
def test_qdrant_groups_chunks_by_document(folder, tmp_path):
    model = f"{folder}+chunks(16)"
    documents = {f"d{row}": text for row, text in enumerate(invent_texts(4, 12))}
    code = write("qdrant", folder, 16, model=str(folder)).code.replace(
        '{"id": "text"}  # your documents', repr(documents)
    )
    (ranking,) = posir.open_model(model).search(["some words"], list(documents.values()))
    expected = [(f"d{row}", score) for row, score in ranking]
    python = build_environment(tmp_path / "venv", "qdrant-client")
    (tmp_path / "run.py").write_text(
        f"{code}\nimport json\nprint(json.dumps(search('some words')))\n"
    )
    output = subprocess.run(
        [python, tmp_path / "run.py"], check=True, capture_output=True, text=True
    ).stdout
    names, scores = zip(*eval(output.splitlines()[-1]), strict=True)
    assert list(names) == [name for name, _ in expected]
    assert np.allclose(scores, [score for _, score in expected], atol=1e-4)


def build_environment(folder, package):
    """Install a package in a new environment that also has the packages of this environment."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    (site_packages,) = folder.glob("lib/*/site-packages")
    (site_packages / "parent.pth").write_text("\n".join(path for path in sys.path if path))
    subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
    return python

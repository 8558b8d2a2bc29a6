"""References to mitigated models: parsing, errors, and metadata that separates results and
embeddings.
"""

import mteb
import pytest

from posir_leaderboard.entries import ModelMeta as LeaderboardMeta
from posir_mitigate.references import list_methods, parse_method, resolve_mitigated
from posir_tasks.base.errors import PosirError
from posir_tasks.models.references import ModelReference, portable_name
from posir_tasks.models.registry import find_model
from tests.support.cli import call_posir
from tests.support.models import write_tiny_model

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.parametrize(
    ("reference", "canonical"),
    [
        ("chunks", "chunks(128,64,max,tokens)"),
        ("chunks(64)", "chunks(64,32,max,tokens)"),
        ("chunks(sentences)", "chunks(4,2,max,sentences)"),
        ("chunks(5,1,sentences,mean)", "chunks(5,1,mean,sentences)"),
        ("chunks(stride=40,size=64)", "chunks(64,40,max,tokens)"),
        ("long_late_chunks(overlap=8)", "long_late_chunks(64,32,tokens,8)"),
        ("both_orders+chunks(32)", "both_orders(1)+chunks(32,16,max,tokens)"),
    ],
)
def test_a_model_with_a_method_has_all_arguments_in_its_name(reference, canonical):
    meta = find_model(ModelReference(f"all-MiniLM-L6-v2+{reference}"))
    assert meta.name == portable_name(meta) == f"{MINILM}+{canonical}"
    assert find_model(ModelReference(meta.name)).name == meta.name
    plain = mteb.get_model_meta(MINILM)
    assert (meta.revision, plain.name) == (plain.revision, MINILM)
    assert meta.model_name_as_path() == f"sentence-transformers__all-MiniLM-L6-v2+{canonical}"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("chnks(3)", r"^'\+chnks': unknown method. Did you mean chunks"),
        (
            "chunks(1,2,3)",
            r"unexpected argument '3'.* size, stride, max or mean, tokens or sentences;",
        ),
        ("chunks(size=1,size=2)", "unexpected argument 'size=2'"),
        ("chunks(big)", "size: Input should be a valid integer"),
        ("both_orders(0)", "sentences: Input should be greater than 0"),
    ],
)
def test_errors_list_the_allowed_values(reference, message):
    with pytest.raises(PosirError, match=message):
        find_model(ModelReference(f"all-MiniLM-L6-v2+{reference}"))
    with pytest.raises(PosirError, match="all-MiniLM-L6-v2"):
        find_model(ModelReference("all-MiniLM-L6-v3+chunks"))


def test_a_folder_and_an_endpoint_can_have_a_method(tmp_path):
    folder = write_tiny_model(tmp_path / "other" / "tiny+chunks(8)")
    for name in ("organization/c+", "organization/notepad+plus", str(folder)):
        assert resolve_mitigated(name, {}) is None
    assert find_model(ModelReference(str(folder))).name == "local/tiny-chunks-8-2567a19a"
    folder = write_tiny_model(tmp_path / "tiny")
    meta = find_model(ModelReference(f"{folder}+chunks(8)"))
    assert (meta.name, portable_name(meta)) == (
        "local/tiny+chunks(8,4,max,tokens)",
        f"{folder}+chunks(8,4,max,tokens)",
    )
    model = mteb.get_model(str(meta.name).replace("local/tiny", str(folder)), device="cpu")
    assert model.mteb_model_meta.name == meta.name
    assert model.mteb_model_meta.max_tokens is None
    endpoint = find_model(ModelReference("bge-m3@http://localhost:8000/v1+chunks(sentences)"))
    assert endpoint.name == "endpoint/bge-m3 (localhost-8000)+chunks(4,2,max,sentences)"


def test_methods_with_equal_arguments_are_equal():
    assert parse_method("chunks", "64") == parse_method("chunks", "size=64,max")
    for method in list_methods().values():
        name = f"{MINILM}+{method()}"
        assert LeaderboardMeta.model_validate({"name": name, "revision": "1"}).name == name


@pytest.mark.slow
def test_probes_require_one_vector_per_text(tmp_path):
    folder = write_tiny_model(tmp_path / "tiny")
    arguments = [
        "--documents",
        "4",
        "--probe",
        "segment_similarity",
        "--output",
        str(tmp_path / "results"),
    ]
    result = call_posir(["probe", f"{folder}+both_orders", *arguments])
    assert "tiny+both_orders(1)" in result.stdout
    result = call_posir(["probe", f"{folder}+chunks(8)", *arguments])
    assert "Give a model with one vector per text" in str(result.exception)

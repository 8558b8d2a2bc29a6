"""Invalid settings raise PosirError, which names file and field."""

from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from posir_build.settings import BuildSettings
from posir_tasks.base.errors import PosirError
from posir_tasks.base.settings_file import load_settings, read_overrides

MINIMAL = {
    "documents": "notes",
    "language": "eng-Latn",
    "domain": "harbour",
    "output": "out",
    "llm": {"model": "m"},
}
BUCKET = {"minimum": 1, "maximum": 9, "share": 1}
PRICED = {"model": "m", "prices": {"input": 1}}


def write(tmp_path, values):
    file = tmp_path / "build.yaml"
    file.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return file


def test_minimal_settings_have_the_papers_lengths(tmp_path):
    settings = load_settings(BuildSettings, write(tmp_path, MINIMAL))
    assert [bucket.share for bucket in settings.sample.buckets] == [3, 3, 3, 3, 2, 2, 2, 2]
    assert [(bucket.minimum, bucket.maximum) for bucket in settings.sample.buckets][::7] == [
        (1, 256),
        (1793, 2048),
    ]
    assert str(settings.work_folder) == "harbour-build"
    assert list(map(str, settings.llm.endpoints)) == ["https://api.openai.com/v1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"language": "deutsch"},
            r"build.yaml: field 'language': language deutsch: ISO 639-3 has no",
        ),
        ({"domain": "My Notes"}, r"field 'domain': 'My Notes' is not a folder name"),
        (
            {"ask": {"question": 3}},
            r"field 'ask.question': unknown field; did you mean questions\? Fields here: llm, "
            r"method",
        ),
        (
            {"false_negatives": {"panel": [{"model": "m", "modle": "x"}]}},
            r"panel.0.modle': unknown field; did you mean model",
        ),
        ({"llm": "m"}, r"field 'llm': Input should be a section with fields: model, endpoints"),
        (
            {"llm": {"model": "m", "endpoints": "http://x"}},
            r"field 'llm.endpoints': Input should be a valid tuple",
        ),
        ({"domain": 12}, r"field 'domain': Input should be a valid string"),
        (
            {"sample": {"lengths": [{"minimum": 1, "maximum": 9}]}},
            r"field 'sample.lengths.0.share': Field required",
        ),
        (
            {"sample": {"lengths": "six"}},
            r"field 'sample.lengths': Input should be posir, five, any, or a list of",
        ),
        ({"ask": {"draws": 4}}, r"field 'ask.draws': Input should be less than or equal to 3"),
        ({"llm": {"model": "m", "budget": 5}}, r"field 'llm': a budget requires prices"),
        (
            {
                "llm": PRICED,
                "verify": {"llm": {"model": "judge", "prices": {"input": 1, "currency": "EUR"}}},
            },
            r"prices in EUR and USD cannot be added up",
        ),
        (
            {"llm": {"model": "m", "endpoints": ["http://me:secret@host/v1"]}},
            r"field 'llm.endpoints'.*must not contain a user",
        ),
        ({"llm": {"model": "m", "endpoints": []}}, r"at least one endpoint"),
        (
            {"sample": {"lengths": [{"minimum": 9, "maximum": 2, "share": 1}]}},
            r"minimum 9 is greater than maximum 2",
        ),
        ({"false_negatives": {"embedder": "e"}}, r"need at least one reranker"),
        ({"translate": {"languages": ["German"]}}, r"field 'translate.languages.0'"),
        (
            {"translate": {"languages": ["deu-Latn", "deu-Latn"]}},
            r"deu-Latn is the language of the documents or is listed twice",
        ),
        ({"balance": {"held_out_output": "out"}}, r"held_out_output: out is also the output"),
        ({"sample": {"lengths": []}}, r"at least one bucket"),
        (
            {"sample": {"lengths": [BUCKET, BUCKET | {"minimum": 9, "maximum": 12}]}},
            r"1 to 9 and 9 to 12 tokens overlap",
        ),
    ],
)
def test_an_error_names_file_and_field(tmp_path, change, message):
    with pytest.raises(PosirError, match=message) as error:
        load_settings(BuildSettings, write(tmp_path, MINIMAL | change))
    assert "secret" not in str(error.value)


def test_files_and_overrides_must_be_mappings(tmp_path):
    for text, message in (
        ("a: [", "YAML"),
        ("- 1", "has no fields"),
        ("", "has no fields"),
        ("\x00", "YAML"),
    ):
        with pytest.raises(PosirError, match=message):
            load_settings(BuildSettings, write(tmp_path, text))
    file = write(tmp_path, MINIMAL)
    assert (
        load_settings(BuildSettings, file, read_overrides(["documents=notes="])).documents
        == "notes="
    )
    for override in ("ask.questions", "=3", "ask..x=1", "language.x=1", "ask=["):
        with pytest.raises(PosirError, match=r"--set|ask|language"):
            load_settings(BuildSettings, file, read_overrides([override]))


FIELDS = st.sampled_from(list(BuildSettings.model_fields))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(FIELDS, JSON, max_size=6))
def test_random_mappings_are_accepted_or_rejected(tmp_path_factory, values):
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(yaml.safe_dump(MINIMAL | values))
    with suppress(PosirError):
        load_settings(BuildSettings, file)

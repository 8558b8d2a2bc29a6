"""References to models: full and bare names, what later kinds of references add, and errors that suggest a name."""

import mteb
import pytest
from mteb.models import ModelMeta

from posir_tasks.errors import PosirError
from posir_tasks.models import registry as module
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import ModelRegistry, find_model, load_model

BM25 = "mteb/baseline-bm25s"


def registry(*names):
    return ModelRegistry({name: ModelMeta.create_empty({"name": name}) for name in names})


def test_a_bare_name_refers_to_the_only_model_that_has_it_and_the_contents_are_unchanged():
    known = registry("a/one", "a/two", "b/two")
    assert known["one"].name == known["a/one"].name == "a/one"
    assert "one" in known
    assert "two" not in known
    assert None not in known
    with pytest.raises(KeyError, match="two"):
        known["two"]
    assert list(known) == ["a/one", "a/two", "b/two"]
    assert known.get("one") is None


def test_another_kind_of_reference_is_one_more_resolver_and_combines_with_the_others(monkeypatch):
    def reversed_name(name, registered):
        base, _, suffix = name.partition("+")
        return registered[base].model_copy(update={"name": f"{registered[base].name}+reversed"}) if suffix else None

    monkeypatch.setattr(module, "RESOLVERS", (*module.RESOLVERS, reversed_name))
    assert registry("a/one")["one+reversed"].name == "a/one+reversed"
    assert mteb.get_model_meta("baseline-bm25s+reversed").name == f"{BM25}+reversed"
    assert find_model(ModelReference("baseline-bm25s+reversed")).name == f"{BM25}+reversed"


def test_a_model_is_found_by_full_and_bare_name():
    assert find_model(ModelReference(BM25)) is find_model(ModelReference("baseline-bm25s", "0_3_0"))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (ModelReference("mteb/baseline-bm25"), rf"no model 'mteb/baseline-bm25' is registered .* Did you mean {BM25}"),
        (ModelReference("all-MiniLM-L6-v3"), "Did you mean sentence-transformers/all-MiniLM-L6-v2"),
        (ModelReference("no model at all has this name"), r"the Hub has none that mteb can load\."),
        (ModelReference(BM25, "older"), r"^Model revision older not found .* Expected 0_3_0\.$"),
    ],
)
@pytest.mark.filterwarnings("ignore:Could not find model")
def test_what_is_not_there_is_named_with_the_most_similar_names(reference, message):
    with pytest.raises(PosirError, match=message):
        find_model(reference)


@pytest.mark.parametrize("name", ["=cmd", "a/.", "\x1b[31m"])
def test_a_name_that_the_hub_cannot_have_is_one_message_for_everything_that_loads_models(name):
    for ask in (find_model, load_model):
        with pytest.raises(PosirError, match=r"is registered with mteb, and the Hub has none that mteb can load"):
            ask(ModelReference(name))

"""Results of mteb's own ColDeRReranking in the report: made by mteb's class on pairs of our own."""

import json
import shutil

import mteb
import pytest
from datasets import Dataset
from mteb.cache import ResultCache
from mteb.tasks.reranking.eng.colder_reranking import ColDeRReranking
from scipy.stats import binomtest
from typer.testing import CliRunner

from posir_report.api import read_results
from posir_report.tables import PAIRS, SUBSET, TASK, EndPreference, read_end_preferences
from posir_significance.intervals import wilson_interval
from posir_tasks.command.app import build_app
from posir_tasks.errors import PosirError
from posir_tasks.scores import Estimate
from tests.support.probed_encoders import FirstWords, invent_texts
from tests.support.results import write_result
from tests.support.simulation import build_profile

READS = 30
PREFERENCE = "Evidence at the end first"


class InventedPairs(ColDeRReranking):
    """mteb's task with ten pairs of invented sentences, and its ids, as its class makes them."""

    def load_data(self, **_):
        queries, corpus, relevant, top_ranked = [], [], {}, {}
        for number, text in enumerate(invent_texts(10, 6)):
            evidence, rest = text.split(". ", 1)
            query = f"{SUBSET}_{number}"
            queries.append({"id": query, "text": " ".join(evidence.split()[:4])})
            corpus += [
                {"id": f"{query}_doc1", "text": f"{evidence}. {rest}"},
                {"id": f"{query}_doc2", "text": f"{rest} {evidence}."},
            ]
            relevant[query] = {f"{query}_doc2": 1}
            top_ranked[query] = [f"{query}_doc1", f"{query}_doc2"]
        subset = {"queries": Dataset.from_list(queries), "corpus": Dataset.from_list(corpus)}
        self.dataset = {SUBSET: {"test": {**subset, "relevant_docs": relevant, "top_ranked": top_ranked}}}
        self.data_loaded = True


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of a model that reads the beginning alone, and of one for which the pairs tie."""
    folder = tmp_path_factory.mktemp("results")
    task = InventedPairs()
    task.hf_subsets = [SUBSET]
    for name, words in (("test/begins", READS), ("test/ties", None)):
        model = FirstWords(words=words)
        model.mteb_model_meta = model.mteb_model_meta.model_copy(update={"name": name})
        mteb.evaluate(model, [task], cache=ResultCache(folder), show_progress_bar=False)
    return folder


def invoke(*arguments):
    result = CliRunner().invoke(build_app(), [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def write_profile(folder):
    return write_result(folder, {"default": build_profile([[30, 5, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1]] * 20)}, task="PosIR-Mini")


def test_a_model_that_reads_the_beginning_never_prefers_the_end_and_ties_count_as_the_end(folder):
    begins, ties = read_end_preferences(folder)
    assert (begins.model, begins.share.value, begins.state) == ("test/begins", 0, "prefers the start")
    # As in mteb: the larger id is first.
    assert (ties.model, ties.share.value, ties.state) == ("test/ties", 1, "prefers the end")


@pytest.mark.parametrize(("share", "state"), [(0.44, "cannot be said"), (0.432, "prefers the start"), (0.6, "prefers the end")])
def test_the_interval_is_wilsons_over_the_pairs(share, state):
    interval = wilson_interval(share, PAIRS)
    assert interval == pytest.approx(binomtest(round(share * PAIRS), PAIRS).proportion_ci(method="wilson"), abs=2e-3)
    assert EndPreference("model", "1", Estimate(share, interval)).state == state


def test_the_number_of_pairs_is_that_of_mteb():
    statistics = ColDeRReranking.metadata.descriptive_stats["test"]["hf_subset_descriptive_stats"]
    assert statistics[SUBSET]["num_queries"] == PAIRS


def test_they_have_a_table_without_results_of_posir_tasks(folder):
    text = invoke("report", folder)
    assert f"{TASK} · {SUBSET}" in text
    assert "0.0 [0.0, 1.5]" in text
    assert "it is 50 %, not 100 %" in " ".join(text.split())
    assert "test/begins" in invoke("report", folder, "--markdown")
    with pytest.raises(PosirError, match="Omit all options"):
        invoke("report", folder, "--bins")


def test_they_are_beside_the_results_of_posir_tasks(folder, tmp_path):
    both = tmp_path / "both"
    shutil.copytree(folder, both)
    write_profile(both)
    text = invoke("report", both)
    assert "PosIR-Mini" in text
    assert PREFERENCE in text
    document = json.loads(invoke("report", both, "--format", "json"))
    assert [entry["task"] for entry in document] == ["PosIR-Mini", *[f"{TASK} ({SUBSET})"] * 2]
    assert document[1]["evidence_at_end_first"] == 0
    assert read_results(both).preferences == read_results(folder).preferences


def test_they_are_on_the_page(folder):
    page = read_results(folder).to_html()
    assert PREFERENCE in page
    assert "test/begins" in page


def test_other_subsets_and_folders_without_the_task_have_no_table(folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    for file in other.rglob(f"{TASK}.json"):
        file.write_text(file.read_text().replace(SUBSET, "brevity_bias"))
    assert read_end_preferences(other) == []
    with pytest.raises(PosirError, match="no result with a position profile"):
        invoke("report", other)
    write_profile(other)
    assert PREFERENCE not in invoke("report", other)

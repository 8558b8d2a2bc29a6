"""The public function of this package: `posir.build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.settings_file import load_settings

if TYPE_CHECKING:
    from posir_build.run import BuildReport


def build(
    documents: str | Path | None = None,
    *,
    output: str | Path | None = None,
    config: str | Path | None = None,
    stage: str | None = None,
    **settings: Any,
) -> BuildReport:
    """Build a dataset of questions about documents, controlled for the position of the evidence, or continue to.

    What a language model has answered is not asked again, and stages that nothing changed for are not run.

    Args:
        documents: Folder of text files, .jsonl or .parquet file, or dataset on the Hub. None if `config` has it.
        output: Folder for the dataset in the PosIR layout, which `POSIR_DATA` takes. None if `config` has it.
        config: YAML file with settings; the other arguments take precedence, in sections field by field.
        stage: Run up to this stage only, and write no dataset: `sample`, `ask`, `locate`, `verify`, `false-negatives` or
            `balance`.
        settings: Further fields by name: `language`, `domain` and `llm` are required, of sections as a mapping, such as
            `ask={"questions": 5}`. Prices are for a million tokens; lengths of documents in tokens, words or characters
            (`sample={"unit": ...}`); `posir build run --settings-help` lists them all.

    Returns:
        For each stage and each check the number of documents or questions taken and kept, the share kept and the one that a
        paper reports, in [0, 1], and how many were discarded for which reason; `datasets`, the number of questions by folder;
        `folder` of calls and report; `notes`, with the cost of the calls.

    Raises:
        PosirError: A setting is wrong; documents, a folder or a model cannot be used; a dataset of other settings is in
            `output`; no question is left after a stage; or the budget is spent.

    Examples:
        >>> import posir
        >>> names = {"language": "eng-Latn", "domain": "harbour"}
        >>> report = posir.build("texts", output="data/harbour", **names, llm={"model": "my-llm"}, sample={"lengths": "any"})
        >>> [row.stage for row in report.rows][:3], report.datasets.keys()
        (['sample', 'ask', 'locate'], dict_keys([PosixPath('data/harbour/eng-Latn/harbour')]))
    """
    from posir_build.run import run_build
    from posir_build.settings import BuildSettings

    options = {"documents": None if documents is None else str(documents), "output": output}
    loaded = load_settings(BuildSettings, Path(config) if config is not None else None, settings, options)
    return run_build(loaded, stage=stage)

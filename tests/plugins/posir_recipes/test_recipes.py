"""Recipes are complete and valid, match their pages, and run scaled down."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import posir
from posir_build.settings import BuildSettings
from posir_build.translation_ratings import RatingSettings
from posir_recipes.api import (
    VARIABLE,
    Recipe,
    build_page,
    check_recipes,
    list_papers,
    list_settings_files,
    read_recipe,
    select_item,
)
from posir_tasks.base.errors import PosirError
from posir_tasks.base.settings_file import Section, load_settings
from posir_tasks.command.shell_lines import Call, check_call, expand_line
from posir_tasks.data.mini import read_documents
from posir_train.settings import TrainingSettings
from tests.support.cli import invoke
from tests.support.commands import run
from tests.support.datasets import POSIR_FOLDER, posir_tables, write_domain
from tests.support.human_answers import Truth, mini_documents
from tests.support.language_model_server import serve_language_model
from tests.support.models import write_tiny_model

PAPERS = list_papers()
#: Tables and figures of each paper.
CONTENT = {
    "bias-learning": ["Tables 1 to 7", "Figures 1 to 2"],
    "built-in-or-learned": ["Tables 1 to 14", "Figures 1 to 9"],
    "open-questions": [f"Question {number}" for number in range(1, 6)],
    "myopic-trap": ["Tables 1 to 4", "Figures 1 to 3", "Algorithm 1"],
    "posir": ["Tables 1 to 43", "Figures 1 to 9"],
    "posq": ["Tables 1 to 4", "Figures 1 to 3", "Algorithm 1"],
}
#: Settings class by command, longest command first, and values passed as arguments.
SETTINGS: dict[tuple[str, ...], tuple[type[Section], dict[str, str]]] = {
    ("study", "rate-translations"): (RatingSettings, {}),
    ("build",): (BuildSettings, {}),
    ("train",): (TrainingSettings, {"model": "m", "data": "d"}),
}


def list_calls(recipe: Recipe, *, scaled: bool) -> list[Call]:
    """List the calls of a recipe in order. Lines that occur in several items are expanded once."""
    lines = {line: item for item in reversed(recipe.items) for line in item.commands}
    items = [
        item.model_copy(
            update={"commands": tuple(line for line in item.commands if lines[line] is item)}
        )
        for item in recipe.items
    ]
    return [call for item in items for call in recipe.expand(item, scaled=scaled)]


RANGE = re.compile(r"(Table|Figure)s (\d+) (?:to|and) (\d+)")


def expand_range(item: str) -> list[str]:
    """List the tables or figures of an item, 31 for `Tables 13 to 43`."""
    match = RANGE.fullmatch(item)
    return (
        [f"{match[1]} {number}" for number in range(int(match[2]), int(match[3]) + 1)]
        if match
        else [item]
    )


@pytest.mark.parametrize("paper", PAPERS)
def test_a_recipe_lists_every_table_and_figure(
    paper: str,
):
    recipe = read_recipe(paper)
    listed = [name for item in recipe.items for name in expand_range(item.item)]
    assert len(listed) == len(set(listed))
    assert {name for names in CONTENT[paper] for name in expand_range(names)} <= set(listed)
    assert all(item.needs if item.commands else item.missing for item in recipe.items)
    assert all(bool(item.commands) == (item.runs is not None) for item in recipe.items)
    unreleased = [item for item in recipe.items if item.runs == "with unreleased material"]
    assert all(item.missing for item in unreleased)
    assert {
        name for item in recipe.items for line in item.commands for name in VARIABLE.findall(line)
    } == set(recipe.variables)
    page = build_page(paper, recipe)
    assert all(f"| {item.item} |" in page for item in recipe.items)


#: Recipes with the most commands.
LONG = ("bias-learning", "built-in-or-learned")


@pytest.mark.parametrize(
    "paper",
    [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in PAPERS],
)
def test_commands_and_settings_of_a_recipe_are_valid(paper: str):
    assert not check_recipes({paper: read_recipe(paper)}).rows
    files = {file.name: file for file in list_settings_files(paper)}
    for scaled in (False, True):
        commands = [command.arguments for command in list_calls(read_recipe(paper), scaled=scaled)]
        words = {word for arguments in commands for word in arguments}
        assert {
            word for word in words if re.fullmatch(r"[a-z0-9-]+\.(yaml|csv|txt)", word)
        } == files.keys()
    for _, *arguments in commands:
        matches = (
            settings
            for prefix, settings in SETTINGS.items()
            if tuple(arguments[: len(prefix)]) == prefix
        )
        section, argument_values = next(matches, (None, {}))
        for file in files.keys() & {*arguments} if section else ():
            load_settings(section, files[file], argument_values)


def test_invalid_calls_are_reported():
    assert posir.recipe("posq", item="Table 2", check=True).exit_status == 0
    recipe = read_recipe("posq")
    invalid = "for model in a b; do KEY=1 posir report $model --no-such-option; done"
    item = recipe.items[0].model_copy(
        update={"commands": (invalid, "# in another environment", "mteb run --modle x")}
    )
    checked = check_recipes({"posq": recipe.model_copy(update={"items": (item,)})})
    assert (checked.title, checked.exit_status) == ("3 calls checked: 3 problems", 1)
    assert [row["call"] for row in checked.records()] == [
        "KEY=1 posir report a --no-such-option",
        "KEY=1 posir report b --no-such-option",
        "mteb run --modle x",
    ]
    assert "Unknown option" in checked.records()[0]["problem"]
    assert "--modle" in checked.records()[2]["problem"]
    assert check_call(("posir", "recipe", "--help")) is None
    assert "'rm' is not posir" in str(check_call(("rm", "-r")))
    with pytest.raises(PosirError, match="The variable 'MODEL' has no value"):
        list(expand_line("posir window $MODEL", {}))


def test_an_item_is_selected_with_its_variables():
    table = select_item(read_recipe("posq"), "figure 3")
    assert [item.item for item in table.items] == ["Figure 3"]
    assert set(table.variables) == {"SUBSET_MODEL"}
    with pytest.raises(PosirError, match=r"no 'Table 9'. Items: Table 1, "):
        select_item(read_recipe("posq"), "Table 9")


def test_the_command_lists_recipes_and_shows_items():
    assert "posq" in invoke("recipe")
    (item,) = json.loads(invoke("recipe", "posq", "--item", "Table 2", "--format", "json"))["items"]
    assert item["commands"][0] == "posir stats $SQUAD"
    with pytest.raises(PosirError, match="Recipes: "):
        invoke("recipe", "posk")


def test_copied_settings_files_do_not_overwrite_others(tmp_path: Path):
    file = tmp_path / "posq" / "fineweb-posq.yaml"
    assert invoke("recipe", "posq", "--output", file.parent).split() == [str(file)]
    file.write_text("mine")
    with pytest.raises(PosirError, match="other content"):
        invoke("recipe", "posq", "--output", file.parent)
    assert file.read_text() == "mine"


@pytest.fixture(scope="session")
def paper_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder for POSIR_DATA: PosIR-Mini in the layouts of SQuAD 2.0 and FineWeb-PosQ, and
    parallel data.
    """
    folder = tmp_path_factory.mktemp("paper-data")
    documents = list(read_documents())
    for name in ("squad_v2", "FineWeb-PosQ", "FineWeb-PosQ_raw"):
        (folder / name).mkdir()
    rows = [
        {"id": f"{document.id}-{row}", "context": document.text, "question": question,
         "answers": {"text": [document.text[slice(*span)]], "answer_start": [span[0]]}}
        for document in documents
        for row, (question, span) in enumerate(zip(document.questions, document.spans, strict=True))
    ]  # fmt: skip
    for split, part in (("train", rows[:600]), ("validation", rows[600:])):
        pl.DataFrame(part).write_parquet(folder / "squad_v2" / f"{split}-00000-of-00001.parquet")
    labels = [
        {"question": question, "content": document.text,
         "span_class": ["beginning", "middle", "end"][min(2, 3 * span[0] // len(document.text))]}
        for document in documents
        for question, span in zip(document.questions, document.spans, strict=True)
    ]  # fmt: skip
    pl.DataFrame(labels).write_parquet(folder / "FineWeb-PosQ" / "train-00000-of-00001.parquet")
    raw = [{**row, "span_class": [row["span_class"]]} for row in labels]
    (folder / "FineWeb-PosQ_raw" / "data.json").write_text(json.dumps(raw))
    for language in ("eng-Latn", "fra-Latn"):
        for domain in ("game", "sports"):
            write_domain(folder / POSIR_FOLDER, posir_tables(), language=language, domain=domain)
    return folder


@pytest.fixture(scope="session")
def language_model() -> Iterator[str]:
    with serve_language_model(Truth(mini_documents(least=0))) as server:
        yield server.url


def run_recipe(commands: list[Call], paper: str, folder: Path, **environment: str) -> None:
    for file in list_settings_files(paper):
        (folder / file.name).write_bytes(file.read_bytes())
    for command in commands:
        arguments = [
            argument.replace("all-MiniLM-L6-v2", "./tiny") for argument in command.arguments
        ]
        process = run(
            *arguments,
            **{"POSIR_CACHE": str(folder / "cache"), **environment, **command.environment},
        )
        assert process.returncode == 0, (
            f"{command}\n{process.stdout[-2000:]}\n{process.stderr[-3000:]}"
        )


@pytest.mark.slow
def test_the_commands_of_an_item_run_scaled_down(
    paper_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    commands = list_calls(select_item(read_recipe("posq"), "Figure 3"), scaled=True)
    assert len(commands) == 2
    run_recipe(commands, "posq", tmp_path, POSIR_DATA=str(paper_data))


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_all_commands_run_scaled_down(
    paper: str,
    paper_data: Path,
    language_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", language_model)
    monkeypatch.setenv("POSIR_DATA", str(paper_data))
    write_tiny_model(tmp_path / "tiny")
    commands = list_calls(read_recipe(paper), scaled=True)
    run_recipe(
        commands,
        paper,
        tmp_path,
        POSIR_DATA=str(paper_data),
        OPENAI_BASE_URL=language_model,
        OPENAI_API_KEY="none",
    )

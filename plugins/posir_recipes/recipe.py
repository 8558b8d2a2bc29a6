"""Recipes as files: `recipe.yaml` in a paper's folder, beside the settings files that its commands read."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from posir_tasks.command.options import format_option
from posir_tasks.display.presentation import TableResult, present
from posir_tasks.display.tables import Column, OutputFormat, Table, to_json, to_markdown
from posir_tasks.errors import PosirError
from posir_tasks.files import check_writable
from posir_tasks.settings_file import Section, load_settings

RECIPE_FILE = "recipe.yaml"
#: A variable in a command.
VARIABLE = re.compile(r"\$([A-Z][A-Z_]*)")


class RecipeVariable(Section):
    """The value of a variable in commands."""

    default: str
    scaled: str
    """The value for a trial of the commands in minutes, on a CPU."""


class RecipeItem(Section):
    """A table or figure of a paper."""

    item: str
    """Its number as printed, such as `Table 1`; neighbors that one command repeats are one item, such as `Table 13 to 43`."""
    shows: str
    commands: tuple[str, ...] = ()
    """Lines of a shell; empty if it cannot be repeated."""
    needs: str | None = None
    published: str | None = None
    ours: str | None = None
    """Figures measured with these commands, and what on."""
    missing: str | None = None


class Recipe(Section):
    """The commands that repeat a paper."""

    title: str
    reference: str
    """Name and arXiv id."""
    summary: str
    """A sentence on what the paper shows."""
    introduction: str
    """A paragraph on how the recipe is used, in Markdown."""
    variables: Mapping[str, RecipeVariable]
    items: tuple[RecipeItem, ...]


def _recipes_folder() -> Path:
    """Return the folder of the recipes: inside the package in a wheel, at the top of a clone."""
    package = Path(str(files("posir_recipes")))
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def list_papers() -> list[str]:
    """Return the names of all papers that have a recipe."""
    return sorted(file.parent.name for file in _recipes_folder().glob(f"*/{RECIPE_FILE}"))


def read_recipe(paper: str) -> Recipe:
    """Return the recipe of a paper; raise PosirError if there is none."""
    papers = list_papers()
    if paper not in papers:
        raise PosirError(f"There is no recipe '{paper}'. Recipes: {', '.join(papers)}.")
    return load_settings(Recipe, _recipes_folder() / paper / RECIPE_FILE)


def select_item(recipe: Recipe, name: str) -> Recipe:
    """Return a recipe with the named item alone; raise PosirError if it has none."""
    items = tuple(item for item in recipe.items if item.item.casefold() == name.casefold())
    if not items:
        raise PosirError(f"{recipe.title} has no '{name}'. Items: {', '.join(item.item for item in recipe.items)}.")
    commands = " ".join(command for item in items for command in item.commands)
    used = {name: variable for name, variable in recipe.variables.items() if name in VARIABLE.findall(commands)}
    return recipe.model_copy(update={"items": items, "variables": used})


def list_settings_files(paper: str) -> list[Path]:
    """Return the settings files that the commands of a paper read."""
    folder = _recipes_folder() / paper
    return sorted(file for file in folder.iterdir() if file.is_file() and file.name != RECIPE_FILE)


#: The first line of a page.
GENERATED = "<!-- Made by `posir recipe {paper} --format markdown`; change recipes/{paper}/recipe.yaml instead. -->"


def _list_exports(recipe: Recipe) -> list[str]:
    return [f'export {name}="{variable.default}"' for name, variable in recipe.variables.items()]


def _to_text(recipe: Recipe) -> str:
    """Return a recipe for a terminal: notes are comments, so that all of it can be pasted into a shell."""
    lines = [f"# {recipe.title} ({recipe.reference})", *_list_exports(recipe)]
    for item in recipe.items:
        labeled = (("needs", item.needs), ("published", item.published), ("ours", item.ours), ("missing", item.missing))
        notes = (f"# {label}: {note}" for label, note in labeled if note)
        lines += ["", f"# {item.item}: {item.shows}", *notes, *item.commands]
    return "\n".join(lines)


def to_page(paper: str, recipe: Recipe) -> str:
    """Return a recipe as a page of the documentation."""
    headings, rows = ("", "shows", "published", "ours", "needs, and what is missing"), []
    for item in recipe.items:
        notes = (item.needs, item.missing and f"Missing: {item.missing}")
        rows.append((item.item, item.shows, item.published or "", item.ours or "", " ".join(filter(None, notes))))
    columns = tuple(map(Column, ("variable", "for a trial on a CPU")))
    variables = ((f"`{name}`", f"`{variable.scaled}`") for name, variable in recipe.variables.items())
    exports = _to_shell([f"posir recipe {paper} --output {paper}", f"cd {paper}", *_list_exports(recipe)])
    repeated = (f"### {item.item}\n\n{item.shows}\n\n{_to_shell(item.commands)}" for item in recipe.items if item.commands)
    sections = (
        GENERATED.format(paper=paper),
        f"# {recipe.title}",
        f"{recipe.reference}. {recipe.summary}",
        recipe.introduction.strip(),
        "## Before the first command",
        exports,
        to_markdown(Table(columns, tuple(variables))),
        "## Every table and figure",
        to_markdown(Table(tuple(map(Column, headings)), tuple(rows))),
        "## Commands",
        *repeated,
    )
    return "\n\n".join(sections)


def _to_shell(lines: Sequence[str]) -> str:
    return "\n".join(["```bash", *lines, "```"])


def recipe(
    paper: Annotated[str | None, typer.Argument(help="A recipe; without it, all are listed.")] = None,
    item: Annotated[str | None, typer.Option(help="A table or figure of the paper, such as 'Table 1'.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder that the settings files of the commands are copied to.")] = None,
    format_: Annotated[
        OutputFormat, format_option(OutputFormat.TEXT, OutputFormat.MARKDOWN, OutputFormat.JSON)
    ] = OutputFormat.TEXT,
) -> None:
    """Show the commands that repeat each table and figure of a paper, with its settings."""
    if paper is None:
        for option, value in {"--item": item, "--output": output}.items():
            if value is not None:
                raise PosirError(f"{option} needs a recipe. Recipes: {', '.join(list_papers())}.")
        recipes = {paper: read_recipe(paper) for paper in list_papers()}
        rows = [{"name": name, **page.model_dump(include={"title", "reference", "summary"})} for name, page in recipes.items()]
        columns = (Column("Recipe"), Column("Paper"), Column("Reference"), Column("Tables and figures", "right"))
        lines = ((name, page.title, page.reference, str(len(page.items))) for name, page in recipes.items())
        present(TableResult(tables=[Table(columns, tuple(lines))], rows=rows), format_)
        return
    content = read_recipe(paper)
    if output:
        check_writable(output)
        copies = {output / source.name: source for source in list_settings_files(paper)}
        for copy, source in copies.items():
            if copy.exists() and copy.read_bytes() != source.read_bytes():
                raise PosirError(
                    f"{copy} exists with other content and is not overwritten. Remove it, or choose another folder."
                )
        for copy, source in copies.items():
            typer.echo(shutil.copyfile(source, copy))
        return
    content = select_item(content, item) if item else content
    match format_:
        case OutputFormat.JSON:
            typer.echo(to_json(content.model_dump()))
        case OutputFormat.MARKDOWN:
            typer.echo(to_page(paper, content))
        case _:
            typer.echo(_to_text(content))

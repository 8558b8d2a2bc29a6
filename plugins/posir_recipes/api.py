"""`posir.recipe`: recipes are files, `recipe.yaml` in a paper's folder, beside the settings files
that its commands read.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from textwrap import wrap
from typing import Literal

from rich.console import Console

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import atomic_write, check_writable
from posir_tasks.base.public import public
from posir_tasks.base.settings_file import Section, load_settings
from posir_tasks.base.wording import pluralize
from posir_tasks.command.shell_lines import Call, check_call, expand_line
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import (
    DisplaySection,
    Table,
    build_columns,
    to_markdown,
)
from posir_tasks.models.protocols import PAPERS, list_differences, list_protocols

RECIPE_FILE = "recipe.yaml"
#: A variable in a command.
VARIABLE = re.compile(r"\$([A-Z][A-Z_]*)")
#: Characters of a line of the introduction in a terminal.
WIDTH = 98


class RecipeVariable(Section):
    """The value of a variable in commands."""

    default: str
    scaled: str
    """The value for a trial of the commands in minutes, on a CPU."""


class RecipeItem(Section):
    """A table or figure of a paper."""

    item: str
    """Its number as printed, such as `Table 1`; neighbors that one command repeats are one item,
    such as `Table 13 to 43`.
    """
    shows: str
    commands: tuple[str, ...] = ()
    """Lines of a shell; empty if it cannot be repeated. A comment says that the next lines need
    another environment.
    """
    runs: Literal["here", "with a GPU", "with what is not released"] | None = None
    """The least that its commands need, at the paper's size; None if it has none."""
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

    def expand(self, item: RecipeItem, *, scaled: bool) -> Iterator[Call]:
        """Yield the calls of an item, as in the paper or scaled down."""
        variables = {
            name: os.path.expandvars(variable.scaled if scaled else variable.default)
            for name, variable in self.variables.items()
        }
        for line in item.commands:
            yield from expand_line(line, variables)


def _recipes_folder() -> Path:
    """Find the folder of the recipes: inside the package in a wheel, at the top of a clone."""
    package = Path(str(files("posir_recipes")))
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def list_papers() -> list[str]:
    """List the papers that have a recipe."""
    return sorted(file.parent.name for file in _recipes_folder().glob(f"*/{RECIPE_FILE}"))


def read_recipe(paper: str) -> Recipe:
    """Read the recipe of a paper; raise PosirError if there is none."""
    papers = list_papers()
    if paper not in papers:
        raise PosirError(f"There is no recipe '{paper}'. Recipes: {', '.join(papers)}.")
    return load_settings(Recipe, _recipes_folder() / paper / RECIPE_FILE)


def select_item(recipe: Recipe, name: str) -> Recipe:
    """Select the named item of a recipe; raise PosirError if it has none."""
    items = tuple(item for item in recipe.items if item.item.casefold() == name.casefold())
    if not items:
        names = ", ".join(item.item for item in recipe.items)
        raise PosirError(f"{recipe.title} has no '{name}'. Items: {names}.")
    mentioned = VARIABLE.findall(" ".join(command for item in items for command in item.commands))
    variables = {key: value for key, value in recipe.variables.items() if key in mentioned}
    return recipe.model_copy(update={"items": items, "variables": variables})


def list_settings_files(paper: str) -> list[Path]:
    """List the settings files that the commands of a paper read."""
    folder = _recipes_folder() / paper
    return sorted(file for file in folder.iterdir() if file.is_file() and file.name != RECIPE_FILE)


def _list_exports(recipe: Recipe) -> list[str]:
    """List the variables of a shell, each with its value for a trial as a comment."""
    lines = []
    for name, variable in recipe.variables.items():
        trial = f'  # on a CPU: "{variable.scaled}"' if variable.scaled != variable.default else ""
        lines.append(f'export {name}="{variable.default}"{trial}')
    return lines


def _list_differences(paper: str) -> list[str]:
    """List how models run without the paper's protocol; none if its protocols are not known."""
    if paper not in PAPERS:
        return []
    return list_differences([(paper, row.model) for row in list_protocols(paper)])


def _to_text(paper: str, recipe: Recipe) -> str:
    """Write a recipe for a terminal: notes are comments, so that all of it can be pasted into a
    shell.
    """
    lines = [f"# {recipe.title} ({recipe.reference})", "#"]
    introduction = wrap(f"{recipe.summary} {recipe.introduction}", WIDTH, break_on_hyphens=False)
    lines += [f"# {line}" for line in introduction]
    lines += ["", *_list_exports(recipe)]
    differences = _list_differences(paper)
    if differences and any(item.commands for item in recipe.items):
        lines.append(f"# Without POSIR_PROTOCOL={paper}:")
        lines += [f"# {difference}" for difference in differences]
    for item in recipe.items:
        lines += ["", f"# {item.item}: {item.shows}"]
        for label in ("runs", "needs", "published", "ours", "missing"):
            if note := getattr(item, label):
                lines.append(f"# {label}: {note}")
        lines += item.commands
    return "\n".join(lines)


def to_page(paper: str, recipe: Recipe) -> str:
    """Write a recipe as a page of the documentation: what it has, what runs where, and what is
    missing. The commands are those that `posir recipe` prints.
    """
    rows = [(item.item, item.shows, item.runs or "", item.missing or "") for item in recipe.items]
    headings = ("", "shows", "runs", "missing")
    first = next(item.item for item in recipe.items if item.commands)
    commands = [
        f'posir recipe {paper} --item "{first}"',
        f"posir recipe {paper} --output {paper}",
    ]
    sections = [
        f"<!-- Made by `posir recipe {paper} --format markdown`; change "
        f"recipes/{paper}/recipe.yaml instead. -->",
        f"# {recipe.title}",
        f"{recipe.reference}. {recipe.summary}",
        recipe.introduction.strip(),
        "Print the commands of an item, and copy their settings files:",
        _to_shell(commands),
        to_markdown(Table(build_columns(headings), tuple(rows))),
    ]
    return "\n\n".join(sections)


def _to_shell(lines: Sequence[str]) -> str:
    return "\n".join(["```bash", *lines, "```"])


@dataclass(frozen=True, repr=False, kw_only=True)
class PaperRecipe(Result):
    """The commands that repeat a paper, or one item of it; printed, they can be pasted into a
    shell.
    """

    paper: str
    recipe: Recipe

    def print_on(
        self,
        console: Console,
        *,
        explain: bool = False,  # noqa: ARG002
        printed: int = 0,  # noqa: ARG002
    ) -> None:
        """Print lines of a shell, as they are."""
        console.out(_to_text(self.paper, self.recipe), highlight=False)

    def to_markdown(self, *, explain: bool = False) -> str:  # noqa: ARG002
        """Return a page of the documentation."""
        return to_page(self.paper, self.recipe)


def show_recipe(paper: str, recipe: Recipe) -> PaperRecipe:
    """Build the result that shows a recipe."""
    parts = []
    for item in recipe.items:
        commands = (f"`{command}`" for command in item.commands)
        parts.append(DisplaySection(item.item, (item.shows, *commands)))
    return PaperRecipe(
        title=recipe.title,
        rows=[item.model_dump() for item in recipe.items],
        values=recipe.model_dump(),
        parts=parts,
        paper=paper,
        recipe=recipe,
    )


def check_recipes(recipes: Mapping[str, Recipe]) -> Result:
    """Check the calls of recipes against the installed programs, as in the paper and scaled down;
    nothing is run.

    There is a row for each wrong one: recipe, item, call and problem.
    """
    rows = []
    number = 0
    for paper, recipe in recipes.items():
        for item in recipe.items:
            calls = {
                str(call): call
                for scaled in (False, True)
                for call in recipe.expand(item, scaled=scaled)
            }
            number += len(calls)
            for line, call in calls.items():
                problem = check_call(call.arguments)
                if problem:
                    row = {"recipe": paper, "item": item.item, "call": line, "problem": problem}
                    rows.append(row)
    problems = pluralize(len(rows), "problem") if rows else "no problem"
    title = f"{pluralize(number, 'call')} checked: {problems}"
    sentences = [": ".join(row.values()) for row in rows]
    return Result(
        title=title, rows=rows, sentences=[*sentences, title], exit_status=int(bool(rows))
    )


@public()
def recipe(
    paper: str | None = None,
    *,
    item: str | None = None,
    check: bool = False,
    output: str | Path | None = None,
) -> PaperRecipe | Result:
    """Show the commands that repeat each table and figure of a paper, with its settings.

        posir recipe posir

    Args:
        paper: A recipe; without it, all are listed.
        item: A table or figure of the paper, such as 'Table 1'.
        check: Check that the installed programs take the options of all commands; exit 1 and the
            line if they do not.
        output: Folder that the settings files of the commands are copied to.

    Returns:
        The recipe; a table of all recipes if none is named; the copied files if there is a folder
        for them; what is wrong with commands if they are checked.

    Raises:
        PosirError: There is no such recipe or item, or a file of another content is in the folder.

    Examples:
        >>> import posir
        >>> posir.recipe("posq", item="Table 2").records()[0]["commands"][0]
        'posir stats $SQUAD'
    """
    papers = list_papers()
    if paper is None:
        if item is not None or output is not None:
            raise PosirError(f"--item and --output need a recipe. Recipes: {', '.join(papers)}.")
        if check:
            return check_recipes({name: read_recipe(name) for name in papers})
        return _tabulate_recipes(papers)
    content = read_recipe(paper)
    if item:
        content = select_item(content, item)
    if check:
        return check_recipes({paper: content})
    if output is None:
        return show_recipe(paper, content)
    copies = [str(copy) for copy in copy_settings(paper, Path(output))]
    return Result(title=content.title, rows=[{"file": name} for name in copies], footer=copies)


def copy_settings(paper: str, folder: Path) -> list[Path]:
    """Copy the settings files of a recipe; raise PosirError before the first if one exists with
    other content.
    """
    check_writable(folder)
    copies = {folder / source.name: source for source in list_settings_files(paper)}
    for copy, source in copies.items():
        if copy.exists() and not (copy.is_file() and copy.read_bytes() == source.read_bytes()):
            raise PosirError(
                f"{copy} exists with other content and is not overwritten. Remove it, or choose "
                "another folder."
            )
    for copy, source in copies.items():
        with atomic_write(copy) as part:
            shutil.copyfile(source, part)
    return list(copies)


def _tabulate_recipes(papers: Sequence[str]) -> Result:
    records = []
    rows = []
    for paper in papers:
        recipe = read_recipe(paper)
        fields = recipe.model_dump(include={"title", "reference", "summary"})
        records.append({"name": paper, **fields})
        rows.append((paper, recipe.title, recipe.reference, str(len(recipe.items))))
    columns = build_columns(("Recipe", "Paper", "Reference", "Items"), ("Items",))
    return Result(title="Recipes", tables=[Table(columns, tuple(rows))], rows=records)

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
from typing import Any, Literal

from pydantic import model_validator
from rich.console import Console

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import atomic_write, check_writable
from posir_tasks.base.public import public
from posir_tasks.base.settings_file import Section, load_settings
from posir_tasks.base.wording import pluralize
from posir_tasks.command.calls import Call, check_call, expand_line
from posir_tasks.display.presentation import Presentable, Result
from posir_tasks.display.tables import Column, DisplaySection, Table, to_markdown
from posir_tasks.models.protocols import PAPERS, list_differences, list_protocols

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

    @model_validator(mode="after")
    def check_runs(self) -> RecipeItem:
        """Raise ValueError if it does not say what its commands need, or not what is not
        released.
        """
        if bool(self.commands) != (self.runs is not None):
            raise ValueError(
                f"{self.item}: `runs` is stated of an item with commands, and of no other"
            )
        if self.runs == "with what is not released" and not self.missing:
            raise ValueError(f"{self.item}: `missing` must say what is not released")
        return self


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
        values = {
            name: variable.scaled if scaled else variable.default
            for name, variable in self.variables.items()
        }
        variables = {name: os.path.expandvars(value) for name, value in values.items()}
        for line in item.commands:
            yield from expand_line(line, variables)


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
        raise PosirError(
            f"{recipe.title} has no '{name}'. Items: "
            f"{', '.join(item.item for item in recipe.items)}."
        )
    commands = " ".join(command for item in items for command in item.commands)
    used = {
        name: variable
        for name, variable in recipe.variables.items()
        if name in VARIABLE.findall(commands)
    }
    return recipe.model_copy(update={"items": items, "variables": used})


def list_settings_files(paper: str) -> list[Path]:
    """Return the settings files that the commands of a paper read."""
    folder = _recipes_folder() / paper
    return sorted(file for file in folder.iterdir() if file.is_file() and file.name != RECIPE_FILE)


def _list_exports(recipe: Recipe) -> list[str]:
    return [f'export {name}="{variable.default}"' for name, variable in recipe.variables.items()]


def _list_differences(paper: str) -> list[str]:
    """Return how models run without the paper's protocol; none of a paper whose protocols are not
    known.
    """
    runs = [(paper, row.model) for row in list_protocols(paper)] if paper in PAPERS else []
    return list_differences(runs)


def _to_text(paper: str, recipe: Recipe) -> str:
    """Return a recipe for a terminal: notes are comments, so that all of it can be pasted into a
    shell.
    """
    lines = [f"# {recipe.title} ({recipe.reference})", *_list_exports(recipe)]
    if differences := _list_differences(paper):
        lines += [
            f"# Without POSIR_PROTOCOL={paper}:",
            *(f"# {difference}" for difference in differences),
        ]
    for item in recipe.items:
        labels = ("runs", "needs", "published", "ours", "missing")
        notes = (f"# {label}: {note}" for label in labels if (note := getattr(item, label)))
        lines += ["", f"# {item.item}: {item.shows}", *notes, *item.commands]
    return "\n".join(lines)


def to_page(paper: str, recipe: Recipe) -> str:
    """Return a recipe as a page of the documentation."""
    headings, rows = ("", "shows", "published", "ours", "needs, and what is missing"), []
    for item in recipe.items:
        notes = (
            item.runs and f"Runs {item.runs}.",
            item.needs,
            item.missing and f"Missing: {item.missing}",
        )
        rows.append(
            (
                item.item,
                item.shows,
                item.published or "",
                item.ours or "",
                " ".join(filter(None, notes)),
            )
        )
    columns = tuple(map(Column, ("variable", "for a trial on a CPU")))
    variables = (
        (f"`{name}`", variable.scaled and f"`{variable.scaled}`")
        for name, variable in recipe.variables.items()
    )
    exports = _to_shell(
        [f"posir recipe {paper} --output {paper}", f"cd {paper}", *_list_exports(recipe)]
    )
    differences = "\n".join(f"- {difference}" for difference in _list_differences(paper))
    without = (f"## Without `POSIR_PROTOCOL={paper}`", differences) if differences else ()
    repeated = (
        f"### {item.item}\n\n{item.shows}\n\n{_to_shell(item.commands)}"
        for item in recipe.items
        if item.commands
    )
    sections = (
        f"<!-- Made by `posir recipe {paper} --format markdown`; change "
        f"recipes/{paper}/recipe.yaml instead. -->",
        f"# {recipe.title}",
        f"{recipe.reference}. {recipe.summary}",
        recipe.introduction.strip(),
        "## Before the first command",
        exports,
        to_markdown(Table(columns, tuple(variables))),
        *without,
        "## Items",
        to_markdown(Table(tuple(map(Column, headings)), tuple(rows))),
        "## Commands",
        *repeated,
    )
    return "\n\n".join(sections)


def _to_shell(lines: Sequence[str]) -> str:
    return "\n".join(["```bash", *lines, "```"])


@dataclass(frozen=True, repr=False)
class PaperRecipe(Presentable):
    """The commands that repeat a paper, or one item of it."""

    paper: str
    recipe: Recipe

    @property
    def title(self) -> str:
        """Title of the paper."""
        return self.recipe.title

    def sections(self) -> list[DisplaySection]:
        """Return the items with their commands, for a page."""
        return [
            DisplaySection(
                title=item.item,
                sentences=(item.shows, *(f"`{command}`" for command in item.commands)),
            )
            for item in self.recipe.items
        ]

    def print_on(self, console: Console, *, explain: bool = False) -> None:  # noqa: ARG002
        """Print what can be pasted into a shell as it is."""
        console.out(_to_text(self.paper, self.recipe), highlight=False)

    def to_markdown(self, *, explain: bool = False) -> str:  # noqa: ARG002
        """Return a page of the documentation."""
        return to_page(self.paper, self.recipe)

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each item."""
        return [item.model_dump() for item in self.recipe.items]

    def document(self) -> dict[str, Any]:
        """Return the whole recipe."""
        return self.recipe.model_dump()


def check_recipes(recipes: Mapping[str, Recipe]) -> Result:
    """Check the calls of recipes against the installed programs, as in the paper and scaled down;
    nothing is run.

    There is a row for each wrong one: recipe, item, call and problem.
    """
    calls = dict.fromkeys(
        (paper, item.item, str(call), call.arguments)
        for paper, recipe in recipes.items()
        for item in recipe.items
        for scaled in (False, True)
        for call in recipe.expand(item, scaled=scaled)
    )
    checked = [(paper, item, call, check_call(arguments)) for paper, item, call, arguments in calls]
    wrong = [
        dict(zip(("recipe", "item", "call", "problem"), row, strict=True))
        for row in checked
        if row[-1]
    ]
    lines = ["{recipe}, {item}: {call}: {problem}".format(**row) for row in wrong]
    title = (
        f"{pluralize(len(calls), 'call')} checked: "
        f"{pluralize(len(wrong), 'problem') if wrong else 'no problem'}"
    )
    sentence = " ".join([*lines, title])
    return Result(
        title=title, rows=wrong, tables=(), sentences=[sentence], exit_status=int(bool(wrong))
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
    if paper is None and check:
        return check_recipes({paper: read_recipe(paper) for paper in list_papers()})
    if paper is None:
        for option, value in {"--item": item, "--output": output}.items():
            if value is not None:
                raise PosirError(f"{option} needs a recipe. Recipes: {', '.join(list_papers())}.")
        return _tabulate_recipes()
    content = read_recipe(paper)
    if check:
        return check_recipes({paper: select_item(content, item) if item else content})
    if output is None:
        return PaperRecipe(paper, select_item(content, item) if item else content)
    folder = Path(output)
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
    return Result(
        title=content.title,
        tables=(),
        rows=[{"file": str(copy)} for copy in copies],
        footer=tuple(map(str, copies)),
    )


def _tabulate_recipes() -> Result:
    recipes = {paper: read_recipe(paper) for paper in list_papers()}
    records = [
        {"name": paper, **recipe.model_dump(include={"title", "reference", "summary"})}
        for paper, recipe in recipes.items()
    ]
    columns = (Column("Recipe"), Column("Paper"), Column("Reference"), Column("Items", "right"))
    rows = (
        (name, recipe.title, recipe.reference, str(len(recipe.items)))
        for name, recipe in recipes.items()
    )
    return Result(title="Recipes", tables=[Table(columns, tuple(rows))], rows=records)

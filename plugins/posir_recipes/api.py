"""The public function of this package: `posir.recipe`.

A recipe is the file `recipe.yaml` in a paper's folder, next to the settings files for its commands.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from textwrap import wrap
from typing import Literal

from rich.console import Console

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import check_writable, write_atomically
from posir_tasks.base.public import public
from posir_tasks.base.settings_file import Section, load_settings
from posir_tasks.base.wording import pluralize
from posir_tasks.command.shell_lines import Call, check_call, expand_line
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import (
    DisplaySection,
    Table,
    build_columns,
    build_numeric_table,
    to_markdown,
)
from posir_tasks.models.protocols import PAPERS, list_differences, list_protocols

RECIPE_FILE = "recipe.yaml"
#: Shell variable in a command.
VARIABLE = re.compile(r"\$([A-Z][A-Z_]*)")
#: Line length of the introduction in comments.
WIDTH = 98


class RecipeVariable(Section):
    """Values of a shell variable in the commands."""

    default: str
    scaled: str
    """Value for a trial that takes minutes on a CPU."""


class RecipeItem(Section):
    """A table or figure of a paper."""

    item: str
    """Printed number, such as `Table 1`. Tables with a common command form one item, such as `Table
    13 to 43`.
    """
    shows: str
    commands: tuple[str, ...] = ()
    """Shell lines; empty if the item cannot be reproduced. Lines for another environment are marked
    with a comment.
    """
    runs: Literal["here", "with a GPU", "with unreleased material"] | None = None
    """Requirement for running the commands at the paper's size; null without commands."""
    needs: str | None = None
    published: str | None = None
    ours: str | None = None
    """Our results with these commands, and the data and models they were measured with."""
    missing: str | None = None


class Recipe(Section):
    """The commands that reproduce a paper."""

    title: str
    reference: str
    """Name and arXiv id."""
    summary: str
    """Main result of the paper in one sentence."""
    introduction: str
    """Instructions for the recipe, one paragraph of Markdown."""
    variables: Mapping[str, RecipeVariable]
    items: tuple[RecipeItem, ...]

    def expand(self, item: RecipeItem, *, scaled: bool) -> Iterator[Call]:
        """Yield the calls of an item, at the paper's size or scaled down."""
        variables = {
            name: os.path.expandvars(variable.scaled if scaled else variable.default)
            for name, variable in self.variables.items()
        }
        for line in item.commands:
            yield from expand_line(line, variables)


def _find_recipes_folder() -> Path:
    """Return the recipes folder: in the installed package, or at the root of a clone."""
    package = Path(str(files("posir_recipes")))
    folder = package / "recipes"
    return folder if folder.is_dir() else package.parents[1] / "recipes"


def list_papers() -> list[str]:
    """List the names of all recipes."""
    return sorted(file.parent.name for file in _find_recipes_folder().glob(f"*/{RECIPE_FILE}"))


def read_recipe(paper: str) -> Recipe:
    """Read the recipe of a paper. Raise PosirError if there is none."""
    papers = list_papers()
    if paper not in papers:
        raise PosirError(f"There is no recipe '{paper}'. Recipes: {', '.join(papers)}.")
    return load_settings(Recipe, _find_recipes_folder() / paper / RECIPE_FILE)


def select_item(recipe: Recipe, name: str) -> Recipe:
    """Select one item of a recipe, with its variables. Raise PosirError if it does not exist."""
    items = tuple(item for item in recipe.items if item.item.casefold() == name.casefold())
    if not items:
        names = ", ".join(item.item for item in recipe.items)
        raise PosirError(f"{recipe.title} has no '{name}'. Items: {names}.")
    used_names = VARIABLE.findall(" ".join(line for item in items for line in item.commands))
    variables = {key: value for key, value in recipe.variables.items() if key in used_names}
    return recipe.model_copy(update={"items": items, "variables": variables})


def list_settings_files(paper: str) -> list[Path]:
    """List the settings files for a paper's commands."""
    folder = _find_recipes_folder() / paper
    return sorted(file for file in folder.iterdir() if file.is_file() and file.name != RECIPE_FILE)


def format_shell_script(paper: str, recipe: Recipe) -> str:
    """Format a recipe as shell lines, with notes as comments."""
    lines = [f"# {recipe.title} ({recipe.reference})", "#"]
    introduction = wrap(f"{recipe.summary} {recipe.introduction}", WIDTH, break_on_hyphens=False)
    lines += [f"# {line}" for line in introduction]
    lines.append("")
    for name, variable in recipe.variables.items():
        trial = f'  # on a CPU: "{variable.scaled}"' if variable.scaled != variable.default else ""
        lines.append(f'export {name}="{variable.default}"{trial}')
    differences = []
    if paper in PAPERS and any(item.commands for item in recipe.items):
        differences = list_differences([(paper, row.model) for row in list_protocols(paper)])
    if differences:
        lines.append(f"# Without POSIR_PROTOCOL={paper}:")
        lines += [f"# {difference}" for difference in differences]
    for item in recipe.items:
        lines += ["", f"# {item.item}: {item.shows}"]
        for label in ("runs", "needs", "published", "ours", "missing"):
            if note := getattr(item, label):
                lines.append(f"# {label}: {note}")
        lines += item.commands
    return "\n".join(lines)


def build_page(paper: str, recipe: Recipe) -> str:
    """Build a recipe's documentation page, in Markdown, with a table of its items."""
    rows = [(item.item, item.shows, item.runs or "", item.missing or "") for item in recipe.items]
    headings = ("", "shows", "runs", "missing")
    first = next(item.item for item in recipe.items if item.commands)
    commands = f'posir recipe {paper} --item "{first}"\nposir recipe {paper} --output {paper}'
    sections = [
        f"<!-- Generated by `posir recipe {paper} --format markdown`; change "
        f"recipes/{paper}/recipe.yaml instead. -->",
        f"# {recipe.title}",
        f"{recipe.reference}. {recipe.summary}",
        recipe.introduction.strip(),
        "Print the commands of an item, and copy their settings files:",
        f"```bash\n{commands}\n```",
        to_markdown(Table(build_columns(headings), tuple(rows))),
    ]
    return "\n\n".join(sections)


@dataclass(frozen=True, repr=False, kw_only=True)
class PaperRecipe(Result):
    """The commands that reproduce a paper or one of its items, printed as shell lines."""

    paper: str
    recipe: Recipe

    def print_on(
        self,
        console: Console,
        *,
        explain: bool = False,  # noqa: ARG002
        sections_printed: int = 0,  # noqa: ARG002
    ) -> None:
        """Print the shell lines."""
        console.out(format_shell_script(self.paper, self.recipe), highlight=False)

    def to_markdown(self, *, explain: bool = False) -> str:  # noqa: ARG002
        """Return the documentation page."""
        return build_page(self.paper, self.recipe)


def build_recipe_result(paper: str, recipe: Recipe) -> PaperRecipe:
    """Build the result for a recipe."""
    sections = []
    for item in recipe.items:
        commands = (f"`{command}`" for command in item.commands)
        sections.append(DisplaySection(item.item, (item.shows, *commands)))
    return PaperRecipe(
        title=recipe.title,
        rows=[item.model_dump() for item in recipe.items],
        values=recipe.model_dump(),
        extra_sections=sections,
        paper=paper,
        recipe=recipe,
    )


def check_recipes(recipes: Mapping[str, Recipe]) -> Result:
    """Check the calls of recipes against the installed programs without running them, both at the
    paper's size and scaled down.

    The result has a row per invalid call, with recipe, item, call and problem.
    """
    # Many calls occur in several items.
    check_once = cache(check_call)
    rows = []
    call_count = 0
    for paper, recipe in recipes.items():
        for item in recipe.items:
            calls = {
                str(call): call
                for scaled in (False, True)
                for call in recipe.expand(item, scaled=scaled)
            }
            call_count += len(calls)
            for line, call in calls.items():
                problem = check_once(call.arguments)
                if problem:
                    row = {"recipe": paper, "item": item.item, "call": line, "problem": problem}
                    rows.append(row)
    problems = pluralize(len(rows), "problem") if rows else "no problem"
    title = f"{pluralize(call_count, 'call')} checked: {problems}"
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
    """Show the commands that reproduce each table and figure of a paper.

        posir recipe posir

    Args:
        paper: Name of the recipe; by default all recipes are listed.
        item: Table or figure of the paper, such as 'Table 1'.
        check: Check that the installed programs accept all commands and options. Invalid calls are
            printed, and the exit status is 1.
        output: Folder to copy the settings files for the commands to.

    Returns:
        The recipe; without `paper`, a table of all recipes; with `output`, the copied files; with
        `check`, the invalid calls.

    Raises:
        PosirError: The recipe or item does not exist, or the folder contains a file with other
            content.

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
        return build_recipe_result(paper, content)
    copies = [str(copy) for copy in copy_settings(paper, Path(output))]
    return Result(title=content.title, rows=[{"file": name} for name in copies], footer=copies)


def copy_settings(paper: str, folder: Path) -> list[Path]:
    """Copy the settings files of a recipe. If a file with other content exists, raise PosirError
    before copying any file.
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
        with write_atomically(copy) as part:
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
    table = build_numeric_table(("Recipe", "Paper", "Reference", "Items"), rows, keys=3)
    return Result(title="Recipes", tables=[table], rows=records)

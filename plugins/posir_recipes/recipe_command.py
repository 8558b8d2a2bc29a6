"""`posir recipe`: the commands that repeat a paper."""

from pathlib import Path
from typing import Annotated

import typer

from posir_recipes.recipe import Recipe, copy_settings, list_papers, read_recipe, select_item
from posir_recipes.text import recipes_table, to_page, to_text
from posir_tasks.command.format_option import format_option
from posir_tasks.display.tables import OutputFormat, print_as, to_json
from posir_tasks.errors import PosirError

RecipeFormat = Annotated[OutputFormat, format_option(OutputFormat.TEXT, OutputFormat.MARKDOWN, OutputFormat.JSON)]


def recipe(
    paper: Annotated[str | None, typer.Argument(help="A recipe; without it, all are listed.")] = None,
    item: Annotated[str | None, typer.Option(help="A table or figure of the paper, such as 'Table 1'.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder that the settings files of the commands are copied to.")] = None,
    format_: RecipeFormat = OutputFormat.TEXT,
) -> None:
    """Show the commands that repeat each table and figure of a paper, with its settings."""
    if paper is None:
        print_recipes(format_, only_for_a_paper={"--item": item, "--output": output})
        return
    content = read_recipe(paper)
    if output:
        for copy in copy_settings(paper, output):
            typer.echo(copy)
    else:
        print_recipe(format_, paper, select_item(content, item) if item else content)


def print_recipes(format_: OutputFormat, *, only_for_a_paper: dict[str, object]) -> None:
    """Print a table of all recipes; raise PosirError if options were given that need one of them."""
    for option, value in only_for_a_paper.items():
        if value is not None:
            raise PosirError(f"{option} needs a recipe. Recipes: {', '.join(list_papers())}.")
    recipes = {paper: read_recipe(paper) for paper in list_papers()}
    records = [
        {"name": paper, **recipe.model_dump(include={"title", "reference", "summary"})} for paper, recipe in recipes.items()
    ]
    print_as(format_, [recipes_table(recipes)], records)


def print_recipe(format_: OutputFormat, paper: str, recipe: Recipe) -> None:
    """Print a recipe."""
    match format_:
        case OutputFormat.JSON:
            typer.echo(to_json(recipe.model_dump()))
        case OutputFormat.MARKDOWN:
            typer.echo(to_page(paper, recipe))
        case _:
            typer.echo(to_text(recipe))

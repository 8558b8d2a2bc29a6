"""The architecture, read off the imports: one direction, no circles, and one folder that knows
mteb's private names.
"""

import ast
import re
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

import posir
from tests.support.source import parse, walk

ROOT = Path(__file__).parents[1]
SOURCE_ROOTS = (ROOT, ROOT / "autoload", ROOT / "plugins", ROOT / "leaderboard")
PACKAGES = (
    ROOT / "posir",
    ROOT / "posir_tasks",
    ROOT / "autoload",
    ROOT / "plugins",
    ROOT / "leaderboard",
)


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    values = {}
    for package in PACKAGES:
        for file in package.rglob("*.py"):
            root = max(
                (root for root in SOURCE_ROOTS if file.is_relative_to(root)),
                key=lambda root: len(root.parts),
            )
            values[
                ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            ] = file
    return values


@cache
def imported_names(tree: ast.AST) -> set[str]:
    """Every dotted name that a module imports, at whatever depth: deferred and typing-only imports
    count.
    """
    names = set()
    for node in walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def owner(name: str) -> str | None:
    """The module of ours that an imported name is, or is taken from."""
    return next((module for module in (name, name.rpartition(".")[0]) if module in modules()), None)


@cache
def imports() -> dict[str, set[str]]:
    """The modules of ours that each of them imports."""
    return {
        module: {result for name in imported_names(parse(file)) if (result := owner(name))}
        - {module}
        for module, file in modules().items()
    }


def test_no_module_imports_itself_through_others():
    try:
        order = list(TopologicalSorter(imports()).static_order())
    except CycleError as error:
        raise AssertionError(f"a circle of imports: {' <- '.join(error.args[1])}") from error
    assert len(order) == len(modules()) > 100


def test_a_plugin_never_imports_another_plugins_hooks():
    assert [
        (module, result)
        for module, others in imports().items()
        for result in others
        if result.startswith("posir_") and result.endswith(".plugin")
    ] == []


def allowed_imports() -> dict[str, set[str]]:
    """The table in CONTRIBUTING.md: what each package imports of the others."""
    section = (
        (ROOT / "CONTRIBUTING.md")
        .read_text()
        .partition("## Which plugin may import which")[2]
        .partition("\n## ")[0]
    )
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {
        name: set(re.findall(r"`(\w+)`", result))
        for names, result in cells
        for name in re.findall(r"`(\w+)`", names)
    }


def test_plugins_import_each_other_as_the_table_says():
    values: dict[str, set[str]] = {
        package.name: set() for root in PACKAGES[3:] for package in root.glob("posir_*")
    }
    for module, others in imports().items():
        package = module.partition(".")[0]
        if package in values:
            values[package] |= {other.partition(".")[0] for other in others} & values.keys() - {
                package
            }
    assert values == allowed_imports()


def test_posir_tasks_imports_no_plugin():
    assert {
        result
        for module, others in imports().items()
        if module.startswith("posir_tasks")
        for result in others
        if not result.startswith(("posir_tasks", "posir_autoload"))
    } == set()


def test_the_front_door_imports_api_modules():
    front = ast.parse((ROOT / "posir" / "__init__.py").read_text())
    listed = {name for name in imported_names(front) if name.startswith("posir_")}
    assert len(listed) == len(posir.__all__)
    assert {name.rpartition(".")[0] for name in listed} - {
        module for module in modules() if module.endswith(".api")
    } == {
        "posir_tasks.base.errors",
        "posir_tasks.datasets.opening",
        "posir_train.evaluation",
    }
    assert [module for module, others in imports().items() if "posir" in others] == []
    assert [file.name for file in (ROOT / "posir").iterdir() if file.suffix == ".py"] == [
        "__init__.py"
    ]


def test_private_names_of_mteb_are_in_one_folder():
    private = {
        (module, name)
        for module, file in modules().items()
        if not module.startswith("posir_tasks.mteb")
        for name in imported_names(parse(file))
        if name.startswith("mteb.") and any(part.startswith("_") for part in name.split("."))
    }
    assert private == set()


def test_paths_are_patterns_nowhere():
    """The readers of polars and the module `glob` would take the folder `beir[1]` for `beir1`."""
    expanding = {
        (module, f"{node.value.id}.{node.attr}")
        for module, file in modules().items()
        if module != "posir_tasks.base.table_files"
        for node in walk(parse(file))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id in ("pl", "polars") and node.attr.startswith(("read_", "scan_"))
    }
    expanding |= {
        (module, name)
        for module, file in modules().items()
        for name in imported_names(parse(file))
        if name.partition(".")[0] == "glob" or name.startswith(("polars.read_", "polars.scan_"))
    }
    assert expanding == set()


#: What parses what comes from outside, and where: the gate, and readers of files whose form is no
#: JSON, CSV or YAML of ours.
PARSERS = {"json.load", "json.loads", "json.JSONDecoder", "csv.reader", "csv.DictReader"}
PARSERS |= {"yaml.load", "yaml.safe_load", "yaml.SafeLoader", "model_validate_json"}
GATES = {"posir_tasks.base.untrusted"}
#: Headers that posir itself wrote into files of its own cache or package.
OWN_DATA = {
    "posir_tasks.models.embeddings.cache",
    "posir_leaderboard.board.site",
    "posir_published.rows",
    "posir_significance.scores",
    # Settings of models are read as transformers reads them: of many, `model_max_length` is 10**30.
    "posir_tasks.models.folder",
    "posir_tasks.models.protocols",
    # Answers that the gate has parsed, validated as JSON.
    "posir_tasks.language_models.chat_client",
}


def modules_with(names: set[str]) -> set[str]:
    """The modules that use an attribute, by its name alone or after that of its module."""
    return {
        module
        for module, file in modules().items()
        for node in walk(parse(file))
        if isinstance(node, ast.Attribute)
        for value in [ast.unparse(node.value)]
        if f"{value}.{node.attr}" in names or (node.attr in names and value != "self")
    }


def test_outside_data_is_parsed_and_csv_written_in_one_module():
    parsing = modules_with(PARSERS)
    assert parsing >= GATES
    assert parsing - GATES - OWN_DATA == set()
    assert modules_with({"csv.writer", "csv.DictWriter", "write_csv"}) == {
        "posir_tasks.display.export"
    }


#: Public functions that share a name on purpose, and why.
TWINS = {"read_results": "`posir.read_results` shows what the one of posir_tasks reads"}


def test_a_public_function_has_a_name_of_its_own():
    """A name is defined once in a package, and a function that other packages use shares its name
    with none.
    """
    users: dict[str, set[str]] = {}
    for module, file in modules().items():
        for name in imported_names(parse(file)):
            users.setdefault(name, set()).add(module.partition(".")[0])
    homes: dict[str, list[str]] = {}
    for module, file in modules().items():
        for node in parse(file).body:
            if isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef
            ) and not node.name.startswith(("_", "posir_")):
                homes.setdefault(node.name, []).append(module)
    twins = {
        name: places
        for name, places in homes.items()
        for module in places
        for package in [module.partition(".")[0]]
        if len(places) > 1
        if [other.partition(".")[0] for other in places].count(package) > 1
        or users.get(f"{module}.{name}", set()) - {package, "posir"}
    }
    assert {name: places for name, places in twins.items() if name not in TWINS} == {}


#: The package whose functions and templates make sentences for people.
MESSAGES = "posir_significance.messages."
#: Methods that test or take apart a text.
TEXT_TESTS = {"count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix"}
TEXT_TESTS |= {"rfind", "rpartition", "rsplit", "split", "splitlines", "startswith"}
#: Methods that take apart or change a text.
CUTS = TEXT_TESTS - {"count", "find", "index", "rfind"} | {"replace"}


@cache
def rendering_names() -> set[str]:
    """The functions of the messages that return text, and their templates."""
    names = set()
    files = [file for module, file in modules().items() if module.startswith(MESSAGES)]
    for node in (node for file in files for node in parse(file).body):
        if (
            isinstance(node, ast.FunctionDef)
            and node.returns
            and ast.unparse(node.returns) in ("str", "Label")
        ):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


class TextTests(ast.NodeVisitor):
    """Finds tests on rendered text in a module: `in`, `startswith`, `re.search` and the like."""

    def __init__(self, tree: ast.Module, *, own: bool) -> None:
        self.names = set(rendering_names()) if own else set()
        self.lines: list[int] = []
        for node in walk(tree):
            if isinstance(node, ast.ImportFrom) and f"{node.module}".startswith(MESSAGES):
                names = {alias.asname or alias.name: alias.name for alias in node.names}
                self.names |= {name for name in names if names[name] in rendering_names()}
        self.visit(tree)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Count the variables of a function that hold rendered text as such, in it alone."""
        before = set(self.names)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign | ast.NamedExpr) and self.is_rendered(inner.value):
                targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                self.names |= {target.id for target in targets if isinstance(target, ast.Name)}
        self.generic_visit(node)
        self.names = before

    def visit_Compare(self, node: ast.Compare) -> None:
        """Find `in`, and `==` with a text that is written out."""
        sides = [node.left, *node.comparators]
        if any(map(self.is_rendered, sides)):
            written = [side for side in sides if isinstance(side, ast.Constant) and side.value]
            is_in = any(isinstance(test, ast.In | ast.NotIn) for test in node.ops)
            if is_in or written:
                self.lines.append(node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Find methods of texts, and functions of the module `re`."""
        function = node.func
        if isinstance(function, ast.Attribute):
            is_pattern = ast.unparse(function.value) == "re" and function.attr != "escape"
            tested = node.args if is_pattern else [function.value]
            if is_pattern or function.attr in TEXT_TESTS:
                self.lines += [node.lineno for part in tested if self.is_rendered(part)]
        self.generic_visit(node)

    def is_rendered(self, node: ast.AST) -> bool:
        """Whether an expression is rendered text, or contains it as a part of a text."""
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in ("format", "strip"):
                return self.is_rendered(function.value)
            return self.is_rendered(function)
        if isinstance(node, ast.IfExp):
            return self.is_rendered(node.body) or self.is_rendered(node.orelse)
        if isinstance(node, ast.JoinedStr | ast.FormattedValue | ast.BoolOp | ast.BinOp):
            return any(map(self.is_rendered, ast.iter_child_nodes(node)))
        return False


def find_text_tests(source: str, *, own: bool = False) -> list[int]:
    """The lines of a module that test rendered text."""
    return TextTests(ast.parse(source), own=own).lines


def test_no_code_decides_on_rendered_text():
    decisions = {
        module: lines
        for module, file in modules().items()
        if (lines := TextTests(parse(file), own=module.startswith(MESSAGES)).lines)
    }
    assert decisions == {}


def test_decisions_on_rendered_text_are_found():
    head = f"from {MESSAGES}comparisons import label_change\n"
    for line, number in {
        "if 'better' in label_change(row): pass": 1,
        "if label_change(row).startswith('b'): pass": 1,
        "re.search('b', f'{label_change(row)}.')": 1,
        "label_change(row).partition(':')": 1,
        "if label_change(row) == 'better': pass": 1,
        "if row.state in STATES: print(label_change(row))": 0,
        "name.partition(':')": 0,
    }.items():
        assert len(find_text_tests(head + line)) == number, line
        assert len(find_text_tests(f"{head}def f():\n    {line}\n")) == number, line
    assert find_text_tests(head + "def f():\n    text = label_change(row)\n    text.split(':')\n")


#: Calls in `posir_tasks.display` that take a text apart, and what the text is.
DISPLAY_DATA = {
    "redact_collected(json.dumps(_to_plain_json(document), indent=2))": "JSON",
    "MARKDOWN_MARKUP.sub(_escape_markup, ' '.join(cell.splitlines()))": "Markdown",
    "f'{self.title}.'": "a question, which ends with its mark",
    "f'{value + 0.0:.1f}'": "a number",
    "alt.SCHEMA_VERSION": "a version",
    "name": "a key of a chart specification",
}


def find_cuts(source: str) -> set[str]:
    """The texts that a module takes apart at a word or a sign. White space is layout."""
    return {
        ast.unparse(node.func.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CUTS
        and any(
            isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.strip()
            for value in node.args
        )
    }


def test_display_takes_no_text_apart():
    cuts = {
        text
        for module, file in modules().items()
        if module.startswith("posir_tasks.display.")
        for text in find_cuts(file.read_text(encoding="utf-8"))
    }
    assert cuts == DISPLAY_DATA.keys()


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ('title.partition(" · ")', 1),
        ('paragraph.split(": ", 1)', 1),
        ('code.startswith("# ")', 1),
        ('self.title.removesuffix(".")', 1),
        ('cell.split("\\n")', 0),
        ("get_parts(title)", 0),
    ],
)
def test_cuts_of_texts_are_found(expression, number):
    assert len(find_cuts(expression)) == number


#: Texts for people in templates: attributes of columns, tables, sections and scales, and variables.
SHOWN = {"finding", "group", "heading", "name", "title", "whole"}
SHOWN_VARIABLES = {"cell", "cells", "facts", "heading", "paragraph", "state", "text", "title"}
SHOWN_VARIABLES |= {"action", "comment", "detail", "explanation", "main", "note", "notes"}
SHOWN_VARIABLES |= {"paragraphs", "reason", "section_title", "sentence", "step", "steps", "term"}
#: Names of tests in Jinja that compare with a value.
COMPARISONS = {"!=", "==", "eq", "equalto", "in", "ne"}
#: What templates take apart: commands, file names, names of models and codes.
TEMPLATE_DATA = {"chart.name", "code", "kind", "line", "models.label", "name", "word"}
#: A selector of CSS that depends on a heading or another text on the page.
SELECTOR = re.compile(r"""\[(?:alt|aria-label|data-label|title)\s*[~|^$*]?=""")


def is_shown(node: nodes.Node | None) -> bool:
    """Whether an expression is a heading, title or cell, or made of one by methods and filters."""
    match node:
        case nodes.Getattr(attr=attribute) | nodes.Getitem(arg=nodes.Const(value=attribute)) if (
            attribute in SHOWN
        ):
            return True
        case nodes.Name(name=name):
            return name in SHOWN_VARIABLES
        case nodes.Call(node=nodes.Getattr(node=inner)):
            return is_shown(inner)
        case nodes.Getitem(node=inner) | nodes.Filter(node=inner):
            return is_shown(inner)
        case nodes.CondExpr(expr1=first, expr2=second):
            return is_shown(first) or is_shown(second)
    return False


def has_text(parts: Iterable[nodes.Node]) -> bool:
    """Whether an expression is a text that is written out, or lists one: words, a dash for a
    missing number, or the bracket of an interval. Separators are none.
    """
    constants = [inner for part in parts for inner in (part, *part.find_all(nodes.Const))]
    values = [constant.value for constant in constants if isinstance(constant, nodes.Const)]
    return any(isinstance(value, str) and re.search(r"[\w–\[]", value) for value in values)


def name_data(node: nodes.Node) -> str:
    """The name of a variable and its attribute: `chart.name`."""
    match node:
        case nodes.Getattr(node=nodes.Name(name=name), attr=attribute):
            return f"{name}.{attribute}"
        case nodes.Getitem(node=inner):
            return name_data(inner)
        case nodes.Name(name=name):
            return name
    return ""


def cuts_text(node: nodes.Node) -> bool:
    """Whether an expression takes a text apart, unless it is data. A line break is layout."""
    match node:
        case nodes.Call(node=nodes.Getattr(node=inner, attr=name), args=values) if name in CUTS:
            pass
        case nodes.Filter(node=inner, name="replace", args=values):
            pass
        case _:
            return False
    is_layout = bool(values) and values[0] == nodes.Const("\n")
    return not is_layout and name_data(inner) not in TEMPLATE_DATA


def decides_on_text(node: nodes.Node) -> bool:
    """Whether an expression takes a text apart, looks for a text in another, or compares a heading,
    title or cell with a text that is written out.
    """
    if cuts_text(node):
        return True
    match node:
        case nodes.Compare(expr=first, ops=[nodes.Operand(op="in" | "notin", expr=second)]) if (
            is_shown(first) and is_shown(second)
        ):
            return True
        case nodes.Compare(expr=first, ops=operands):
            sides = [first, *(operand.expr for operand in operands)]
            others = [side for side in sides if not is_shown(side)]
            return len(others) < len(sides) and has_text(others)
        case nodes.Test(node=inner, name=name, args=values):
            return name in COMPARISONS and is_shown(inner) and has_text(values)
        case nodes.Filter(
            name="selectattr" | "rejectattr", args=[nodes.Const(value=attribute), _, *values]
        ):
            return attribute in SHOWN and has_text(values)
    return False


def find_template_decisions(source: str) -> list[int]:
    """The lines of a template that decide on a heading, a title or a cell, also in CSS."""
    tree = jinja2.Environment().parse(source)
    kinds = (nodes.Compare, nodes.Call, nodes.Test, nodes.Filter)
    lines = [node.lineno for node in tree.find_all(kinds) if decides_on_text(node)]
    return lines + [source.count("\n", 0, match.start()) + 1 for match in SELECTOR.finditer(source)]


def test_no_template_decides_on_headings_or_cells():
    templates = [file for package in PACKAGES for file in package.rglob("*.html")]
    assert len(templates) > 4
    assert {
        file.name: lines
        for file in templates
        if (lines := find_template_decisions(file.read_text(encoding="utf-8")))
    } == {}


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ('column.heading == "State"', 1),
        ('"State" != columns[at].heading', 1),
        ('column["heading"] == "State"', 1),
        ('column.heading in ("Model", "Task")', 1),
        ('"minus" in column.heading', 1),
        ('column.heading | lower == "state"', 1),
        ('column.heading.lower() == "state"', 1),
        ('heading.startswith("Bias")', 1),
        ('columns[at - 1].heading.lower().startswith("bias")', 1),
        ('section.title.endswith("minus end")', 1),
        ('cells[0].endswith("(fewest vectors)")', 1),
        ('"fewest" in cells[0]', 1),
        ('column.heading is eq "State"', 1),
        ('columns | selectattr("heading", "equalto", "Difference")', 1),
        ('columns | selectattr("group", "equalto", column.group)', 0),
        ('columns | selectattr("align", "equalto", "right")', 0),
        ("column.group != columns[0].group", 0),
        ('column.role == "state"', 0),
        ("not column.heading", 0),
        ('" [" in cells[at]', 1),
        ('" [" in facts[:-1] | join', 1),
        ('cell in ("–", "0.0%")', 1),
        ('cell.split(" [")[0]', 1),
        ('title.rpartition(" [")[0]', 1),
        ('strip.scale.name == "nDCG@10"', 1),
        ('strip.scale.whole != "the evidence"', 1),
        ('paragraph.startswith("nDCG@10: ")', 1),
        ("strip.scale.name", 0),
        ("cells[at] is measured", 0),
        ('cell.split(" · ")[1:]', 1),
        ('section.title.partition(" · ")', 1),
        ('paragraph.partition(": ")[2]', 1),
        ('step.removesuffix(".")', 1),
        ('table.title | replace("the ", "")', 1),
        ('row.said.split(". ")', 1),
        ("chart.name not in title", 1),
        ('text.replace("\\n", " ")', 0),
        ('name.split("/")', 0),
        ('kind.startswith("changes")', 0),
    ],
)
def test_decisions_of_templates_are_found(expression, number):
    assert len(find_template_decisions(f"{{% if {expression} %}}x{{% endif %}}")) == number


@pytest.mark.parametrize(
    ("selector", "number"),
    [
        ('td[data-label="Difference"]', 1),
        ('td[data-label^="Vectors"]', 1),
        ("[aria-label*=Model]", 1),
        ("td[data-label]::before", 0),
        ('td[data-role="state"]', 0),
    ],
)
def test_selectors_of_headings_are_found(selector, number):
    style = f"<style>\n{selector} {{ order: 1; }}\n</style>"
    assert find_template_decisions(style) == [2] * number

"""The words of the code, read off its syntax trees: nouns for variables, sentences for docstrings,
a name for each class.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source import parse, walk

ROOT = Path(__file__).parents[1]
ROOMS = ("posir", "posir_tasks", "plugins", "leaderboard", "benchmarks", "autoload")
#: Names that say nothing of a value.
EMPTY_NAMES = {"one", "ones", "found", "each", "thing"}
#: Words that open a fragment, not a sentence. `Whether` is for booleans: attributes and properties.
FRAGMENT = re.compile(
    r"(What|As|Of|Such|Who|Whose|How|Where|When|Which|Why|By|From|With|Above|Below|In) "
)
BRITISH = re.compile(
    r"colour|behaviour|\bcentred?\b|centring|favour|neighbour|artefact|whilst|\bgrey(?!s\b)|licence|catalogue|analys(e\b|ed|ing)"
    r"|judgement|organis|misspelt|normalis|generalis|summaris|recognis|initialis|optimis|labelled\b(?!by)|towards\b"
    r"|afterwards|honour|flavour",
    re.IGNORECASE,
)
#: Texts that are data, and prompts and patterns that match them; and this list.
TEXTS = ("mini/texts", "faults.py", "test_words.py", "personas.txt")


def stored_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that a module gives to a value or a parameter, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int]]:
    """Every docstring with what it is of and its line; those below attributes too."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for index, statement in enumerate(body if isinstance(body, list) else ()):
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield body[index - 1] if index else node, statement.value.value, statement.lineno


def is_function(node: ast.AST) -> bool:
    """Return whether a node is a function or method, and no property."""
    return isinstance(node, ast.FunctionDef) and not any(
        "property" in ast.unparse(item) for item in node.decorator_list
    )


def test_classes_have_distinct_names():
    classes = [
        node.name
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        for node in walk(parse(file))
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name, count in Counter(classes).items() if count > 1] == []


@pytest.mark.parametrize("suffix", ["py", "md", "js", "html", "css"])
def test_spelling_is_american(suffix):
    files = [
        file for room in (*ROOMS, "docs", "tests") for file in (ROOT / room).rglob(f"*.{suffix}")
    ]
    files += [*ROOT.glob(f"*.{suffix}")]
    assert [
        f"{file.relative_to(ROOT)}:{number}: {match[0]}"
        for file in files
        if not any(text in str(file) for text in TEXTS)
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (match := BRITISH.search(line))
    ] == []


#: Words that say more than an interval: a p above 0.05 is no evidence of absence, and no part of a
#: difference has a cause.
OVERSTATED = re.compile(
    r"\b(no|not|nothing is|in)[ -]?significan(t|ce)\b|\bsignificantly\b|\btruncation, "
    r"not\b|\bless biased\b"
    r"|\bof (the |its )?\d+(\.\d+)? points (go|goes|come|comes|is due|are due) ",
    re.IGNORECASE,
)


def test_a_sentence_that_says_more_than_its_interval_is_caught():
    for sentence in (
        "Is not\nsignificant.",
        "It is truncation, not bias.",
        "20 of the 24.1 points go with the window.",
    ):
        assert OVERSTATED.search(" ".join(sentence.split()))


def test_no_text_says_more_than_an_interval():
    rooms = [
        ROOT / room
        for room in (*ROOMS, "recipes", "docs", "README.md", "CHANGELOG.md", "action.yml")
    ]
    files = [file for room in rooms for file in ([room] if room.is_file() else room.rglob("*"))]
    texts = [
        file
        for file in files
        if file.suffix in (".py", ".md", ".html", ".js", ".css", ".yaml", ".yml", ".json")
    ]
    assert len(texts) > 300
    assert [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in texts
        for match in OVERSTATED.finditer(" ".join(file.read_text(encoding="utf-8").split()))
    ] == []


#: What is no sentence of a page: code, tables, headings, formulas and pictures.
NO_PROSE = re.compile(r"```.*?```|^(?:    |\||#|!\[).*?$", re.DOTALL | re.MULTILINE)
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=- |\d\. )")
SENTENCE = re.compile(r"(?<=[.!?:;])[)*']* (?=[A-Z`'*\[(0-9])")


def test_sentences_of_the_docs_have_at_most_35_words():
    long = []
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", NO_PROSE.sub("\n\n", page.read_text()))
        sentences = [
            sentence
            for part in PARAGRAPH.split(text)
            for sentence in SENTENCE.split(" ".join(part.split()))
        ]
        long += [f"{page.name}: {sentence}" for sentence in sentences if len(sentence.split()) > 35]
    # Lists of links and of probes, not sentences.
    assert [
        sentence for sentence in long if " · " not in sentence and sentence.count(" of 3)") < 5
    ] == []

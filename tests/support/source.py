"""The syntax trees of the product, parsed and walked once for all tests of a process."""

import ast
from functools import cache
from pathlib import Path


@cache
def parse(file: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def walk(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a syntax tree, in the order of `ast.walk`."""
    return tuple(ast.walk(tree))

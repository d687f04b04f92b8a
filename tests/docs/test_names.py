"""Names and docstrings of the package: a reader of one line must know what a function does, or gives."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What leaves out its object: nobody finds `of` among forty of them. A guard rule is named by what it refuses, and a
# command's function by the command.
PREPOSITIONS = re.compile(
    "about|after|as|at|before|between|by|for|from|in|of|on|over|since|than|to|under|until|with|within|without"
)
VERBS = re.compile("(ask|find|give|hold|keep|know|look|make|put|read|say|see|show|take|tell)s?|go|goes|note")
PARTICIPLES = re.compile(
    "[a-z]*ed|became|become|begun|born|bound|bought|broken|built|chosen|done|drawn|fallen|felt|flown|found|given|gone|grown|"
    "heard|held|hidden|kept|known|laid|left|lost|made|meant|met|paid|said|seen|sent|shown|spent|split|spoken|stood|"
    "taken|thought|thrown|told|understood|won|worn|written"
)
NOUNS = frozenset({"bed", "embed", "feed", "need", "seed", "shed", "speed"})


def functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Yield the functions of a module, and the methods of its classes with True; what is nested has one reader."""
    for each in tree.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each, False
        elif isinstance(each, ast.ClassDef):
            for inner in each.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield inner, True


def lacks_object(name: str, *, method: bool) -> bool:
    """Return whether a name says neither what is done nor with what; a method's object may be its class's."""
    word = name.strip("_")
    if word in NOUNS:
        return False
    if PREPOSITIONS.fullmatch(word) or PARTICIPLES.fullmatch(word) or word == "look":
        return True
    return not method and VERBS.fullmatch(word) is not None


def decorators(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the decorators of a function as text."""
    return " ".join(ast.unparse(each) for each in function.decorator_list)


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and the tree of every module of the package."""
    for path in sorted((ROOT / "gpuwatch").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_a_function_is_named_with_its_object() -> None:
    """No function is called `of`, `look`, `read`, `shown` or the like; a property may be an adjective."""
    offenders = [
        f"{path}:{function.lineno} {function.name}"
        for path, tree in modules()
        if not path.startswith("gpuwatch/guard/")
        for function, method in functions(tree)
        if lacks_object(function.name, method=method)
        and not any(word in decorators(function) for word in ("property", ".setter", "command("))
    ]
    assert not offenders, "name what these do, or give:\n" + "\n".join(offenders)


def test_a_docstring_says_more_than_three_words() -> None:
    """A docstring that is shorter than its function's name helps nobody."""
    offenders = [
        f"{path}:{getattr(node, 'lineno', 1)} {text}"
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module)
        and (text := ast.get_docstring(node)) is not None
        and len(text.split()) <= 3
    ]
    assert not offenders, "say what these do, or give:\n" + "\n".join(offenders)

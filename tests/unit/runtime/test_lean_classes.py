"""runtime/lean_classes.py: dataclasses that share their code do what others do."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

# What is said of it: texts, equality, hashes, refusals, order, what may not be set or deleted, and who inherits.
CLASSES = """
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

@dataclass(frozen=True, slots=True)
class Empty: pass

@dataclass(frozen=True, slots=True)
class One:
    only: object

@dataclass(frozen=True, slots=True, kw_only=True)
class Some:
    name: str
    size: float = 1.0
    hidden: int = field(default=0, repr=False)
    ignored: int = field(default=0, compare=False)
    unhashed: list = field(default_factory=list, hash=False)

@dataclass(frozen=True)
class Loose:
    a: int = 1
    b: int = 2

class Child(Loose):
    pass

@dataclass(frozen=True)
class Grown(Loose):
    c: int = 3

@dataclass
class Open:
    a: object = None
    b: int = 0

@dataclass(order=True, unsafe_hash=True)
class Ordered:
    a: int
    größe: int = 0

@dataclass(eq=False, repr=False)
class Bare:
    a: int = 0

def attempt(act):
    try:
        return act()
    except (AttributeError, TypeError) as error:
        return f"{type(error).__name__}: {error}"

nan = float("nan")
made = [
    Empty(), Empty(), One(nan), One(1), One(1.0), One((1,)), One([1]), Some(name="a"), Some(name="a", hidden=1),
    Some(name="a", ignored=1), Some(name="a", unhashed=[1]), Some(name="b", size=nan), Loose(), Loose(2), Child(),
    Child(), Grown(), Grown(c=4), Open(), Open(1), Ordered(1), Ordered(1), Ordered(2, 1), Loose(Loose(1, 2), One(1)),
]
for each in made:
    print(repr(each), attempt(lambda: hash(each) if "nan" not in repr(each) else 0))
    print([each == other for other in made], [each != other for other in made])
    print(attempt(lambda: [each < other for other in made if type(other) is type(each)]))
    for name in () if isinstance(each, Open | Ordered) else ("a", "only", "other", "name", "__dict__"):
        print(attempt(lambda: setattr(each, name, 7)), attempt(lambda: delattr(each, name)), repr(each))
loop = Open()
loop.a = [loop, Open(loop)]
print(repr(loop), Bare() == Bare(), repr(replace(Some(name="a"), size=2)), Loose().__eq__(3))
for kind in (Some, Open, Ordered, Loose, Grown):
    print([each.name for each in fields(kind)], kind.__match_args__, kind.__repr__.__qualname__, kind.__eq__.__name__)
"""
SHARE = "from gpuwatch.runtime.lean_classes import share_methods\nshare_methods()\n"


def said(program: str) -> str:
    """What a fresh process prints; two of them make the same hashes."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_they_do_what_others_do() -> None:
    """In text, equality, hash, order, and each refusal with its words."""
    assert said(SHARE + CLASSES) == said(CLASSES) != ""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python compiles the functions of a class at once")
def test_they_share_their_code() -> None:
    """All but `__init__` and the order have one code for all classes."""
    program = """
names = ("__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
print([getattr(Some, name).__code__ is getattr(Grown, name).__code__ for name in names], Open.__init__ is Some.__init__)
"""

    assert said(SHARE + CLASSES + program).splitlines()[-1] == "[True, True, True, True, True] False"


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there these functions are others")
def test_a_python_without_one_of_them_is_left_as_it_is() -> None:
    """An agent starts with it, and takes a little more memory."""
    program = "import dataclasses\nheld = dataclasses._hash_fn\ndel dataclasses._repr_fn\n"

    assert said(program + SHARE + "print(dataclasses._hash_fn is held)") == "True\n"

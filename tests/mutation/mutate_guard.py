"""Break the guard and its policies on purpose, one place at a time: a test must fail each time (`make mutate`).

Every rule is made one that never objects, every comparison turned round, every objection made a consent, every `and` an
`or`, every `not` dropped, and every verb taken out of every rule's list. pytest collects the tests once; each mutant
then runs in a child of its own, until the first failure. What survives is printed, and is an error.
`make mutate ARGS="policies.idle guard.ownership"` breaks these modules alone.
"""

import ast
import copy
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FunctionType, ModuleType
from typing import Any

import pytest
from hypothesis import Phase, is_hypothesis_test, settings

from gpuwatch import guard
from gpuwatch.guard import case, growth, mass_idleness, sensors
from gpuwatch.guard.case import Finding
from gpuwatch.guard.rules import Question
from gpuwatch.policies import (
    capacity,
    elsewhere,
    idle,
    idle_settings,
    notices,
    scale_in_protection,
    sizes,
    starts,
    unknown_pool,
    waiting,
)
from gpuwatch.policies.idle_timeout import node_wait
from gpuwatch.policies.kubernetes import idle_pods, idle_pods_obstacles, workload_use

# Each rule with what it asks about machines, and about workloads of a cluster.
QUESTIONS: tuple[tuple[str, str, Question[Any]], ...] = tuple(
    (name, kind, asked)
    for name, rule in guard.RULES.items()
    for kind, asked in (("machines", rule.machines), ("workloads", rule.workloads))
    if asked is not None
)
# Where the rules are, and what they and the policies stand on.
MODULES: tuple[ModuleType, ...] = (
    *dict.fromkeys(sys.modules[asked.ask.__module__] for _, _, asked in QUESTIONS),
    *(case, growth, mass_idleness, sensors, guard),
    *(
        elsewhere,
        idle,
        idle_settings,
        notices,
        waiting,
        node_wait,
        capacity,
        sizes,
        starts,
        scale_in_protection,
        unknown_pool,
    ),
    *(idle_pods, idle_pods_obstacles, workload_use),
)
TESTS = (
    "unit/guard/test_guard",
    "docs/test_guard_page",
    "unit/guard/test_guard_edges",
    "unit/guard/test_guard_rounds",
    "unit/guard/test_guard_scope",
    "unit/guard/test_guard_sentences",
    "properties/test_growth_is_not_blocked",
    "properties/test_launches",
    "properties/test_promises_are_kept",
    "properties/test_group_protection",
    "unit/guard/test_mass_idleness",
    "unit/guard/test_new_sensors",
    "unit/policies/test_scale_in_protection",
    "unit/policies/test_capacity",
    "unit/policies/test_capacity_late",
    "unit/policies/test_waiting",
    "unit/policies/test_idle",
    "unit/policies/test_idle_transitions",
    "unit/policies/test_profiles",
    "unit/policies/test_idle_choices",
    "unit/policies/test_budget_pressure",
    "unit/policies/test_unknown_pool",
    "unit/policies/test_elsewhere",
    "unit/guard/test_workloads",
    "unit/policies/kubernetes/test_idle_pods",
    "unit/policies/kubernetes/test_workload_use",
)
WORKERS = max(1, os.cpu_count() or 1)
_QUIET = (
    *("-o", "addopts=--import-mode=importlib", "-n0", "-p", "no:cacheprovider", "-p", "no:terminal"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
# Places where the mutant does the same as the code, each with its reason; by the name that is printed.
SAME: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One place broken: what it is called, and what breaks it."""

    name: str
    apply: Callable[[], None]


def mutants() -> Iterator[Mutant]:
    """All of them."""
    for name, kind, asked in QUESTIONS:
        of_kind = "" if kind == "machines" else " of workloads"
        yield Mutant(name=f"{name}: never objects{of_kind}", apply=_asking(name, kind, replace(asked, ask=_silent)))
        for verb in sorted(asked.verbs):
            less = replace(asked, verbs=asked.verbs - {verb})
            yield Mutant(name=f"{name}: not for {verb}{of_kind}", apply=_asking(name, kind, less))
    for module in MODULES:
        tree = ast.parse(inspect.getsource(module))
        classes = [(getattr(module, each.name), each.body) for each in tree.body if isinstance(each, ast.ClassDef)]
        for place, body in [(module, tree.body), *classes]:
            for function in (node for node in body if isinstance(node, ast.FunctionDef)):
                yield from _of_function(module, place, function)


def _silent(case: object) -> Finding:
    """A rule that never objects."""
    del case
    return False, "", ""


def _asking(name: str, kind: str, asked: Question[Any]) -> Callable[[], None]:
    """Let a rule ask otherwise about machines, or about workloads."""
    changes: dict[str, Any] = {kind: asked}
    rule = replace(guard.RULES[name], **changes)
    return lambda: guard.RULES.update({name: rule})


def _code_of(new: Callable[..., object], old: Callable[..., object]) -> Callable[[], None]:
    """Give a function another's code: whoever holds it calls the other."""
    assert isinstance(new, FunctionType)
    assert isinstance(old, FunctionType)
    code = new.__code__
    return lambda: setattr(old, "__code__", code)


def _of_function(module: ModuleType, place: ModuleType | type, function: ast.FunctionDef) -> Iterator[Mutant]:
    """Every change of one function of a module, or of a class in it."""
    held = place.__dict__[function.name]
    old = getattr(held, "fget", held)  # of a property: its function
    within = "" if place is module else f"{place.__name__}."
    for number, node in enumerate(ast.walk(function)):
        broken = _broken(node)
        if broken is None:
            continue
        mutated = copy.deepcopy(function)
        target = list(ast.walk(mutated))[number]
        mutated.decorator_list = []
        text = f"{module.__name__.removeprefix('gpuwatch.')}.{within}{function.name}: {ast.unparse(node)}"
        target.__dict__.update(broken.__dict__)
        target.__class__ = broken.__class__  # a node may become another
        found = dict(module.__dict__)
        whole = ast.fix_missing_locations(ast.Module(body=[mutated], type_ignores=[]))
        exec(compile(whole, module.__file__ or "", "exec"), found)  # noqa: S102  our own source, changed in one place
        yield Mutant(name=text, apply=_code_of(found[function.name], old))


def _broken(node: ast.AST) -> ast.expr | None:
    """What a place becomes; None where there is nothing to break."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _TURNED:
        return ast.Compare(
            left=node.left, ops=[_TURNED[type(node.ops[0])](), *node.ops[1:]], comparators=node.comparators
        )
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(op=ast.Or() if isinstance(node.op, ast.And) else ast.And(), values=node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ast.Call(func=ast.Name(id="bool", ctx=ast.Load()), args=[node.operand], keywords=[])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "refuse":
        return ast.Call(func=ast.Name(id="allow", ctx=ast.Load()), args=node.args[:1], keywords=[])
    return None


class Run:
    """A pytest plugin that runs the collected tests once as they are, and once for each mutant."""

    def __init__(self, chosen: Sequence[str] = ()) -> None:
        """Nothing found yet. `chosen` are beginnings of mutants' names; without any, all are tried."""
        self.chosen = tuple(chosen) or ("",)
        self.killed: list[str] = []
        self.survivors: list[str] = []
        self.sound = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of the usual loop."""
        settings.register_profile(
            "mutants", max_examples=20, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
        )
        settings.load_profile("mutants")
        session.items.sort(key=lambda item: is_hypothesis_test(getattr(item, "function", None)))  # the quick ones first
        self.sound = self._wait({_child(session, lambda: None): "nothing broken"})[1]
        waiting: dict[int, str] = {}
        for mutant in mutants() if self.sound else ():
            if not mutant.name.startswith(self.chosen):
                continue
            waiting[_child(session, mutant.apply)] = mutant.name
            if len(waiting) >= WORKERS:
                self._note(waiting)
        while waiting:
            self._note(waiting)
        return True

    def _note(self, waiting: dict[int, str]) -> None:
        name, survived = self._wait(waiting)
        (self.survivors if survived else self.killed).append(name)
        if survived and name not in SAME:
            sys.stdout.write(f"SURVIVED  {name}\n")
            sys.stdout.flush()

    @staticmethod
    def _wait(waiting: dict[int, str]) -> tuple[str, bool]:
        pid, status = os.wait()
        return waiting.pop(pid), os.waitstatus_to_exitcode(status) == 0


def _child(session: pytest.Session, apply: Callable[[], None]) -> int:
    """A process in which that is broken; it ends with 0 if no test fails."""
    pid = os.fork()
    if pid:
        return pid
    try:
        apply()
        for number, item in enumerate(session.items):
            following = session.items[number + 1] if number + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                os._exit(1)
        os._exit(0)
    except BaseException:  # noqa: BLE001  a mutant that breaks the runner is found as well
        os._exit(1)


def main(chosen: Sequence[str]) -> int:
    """Run it, print the figures."""
    begun, run = time.perf_counter(), Run(chosen)  # the script's own time, told to people
    files = [f"tests/{name}.py" for name in TESTS]
    pytest.main([*_QUIET, *files], plugins=[run])
    if not run.sound:
        sys.stdout.write("The tests fail on the code as it is.\n")
        return 1
    survivors = [name for name in run.survivors if name not in SAME]
    seconds = time.perf_counter() - begun
    sys.stdout.write(f"{len(run.killed) + len(run.survivors)} mutants, {len(run.killed)} killed in {seconds:.0f} s\n")
    for name in sorted(set(SAME) & set(run.survivors)):
        sys.stdout.write(f"the same  {name}: {SAME[name]}\n")
    return len(survivors) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

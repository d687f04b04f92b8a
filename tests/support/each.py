"""A check of every entry of a list as one test, which names all entries that fail it."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

T = TypeVar("T")
P = ParamSpec("P")


def for_each(
    things: Iterable[T], name: Callable[[T], object] = str
) -> Callable[[Callable[Concatenate[T, P], None]], Callable[P, None]]:
    """Make a check, whose first parameter is one thing, the test of all these things.

    Parametrised, each thing would be a test of its own: thousands that cost their collection and their line in
    every report, and say no more than the message here. Cases of behaviour stay parametrised.
    """
    every = list(things)

    def decorate(check: Callable[Concatenate[T, P], None]) -> Callable[P, None]:
        @functools.wraps(check)
        def test(*args: P.args, **kwargs: P.kwargs) -> None:
            wrong: dict[str, BaseException] = {}
            for thing in every:
                try:
                    check(thing, *args, **kwargs)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  whatever a test may fail with
                    wrong[str(name(thing))] = error
            if wrong:
                told = [f"{which}: {str(error) or type(error).__name__}" for which, error in wrong.items()]
                first = next(iter(wrong.values()))
                raise AssertionError(f"{len(wrong)} of {len(every)}:\n" + "\n".join(told)) from first

        signature = inspect.signature(check)
        described: Any = test
        described.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])
        return test

    assert every, "there is nothing to check"
    return decorate

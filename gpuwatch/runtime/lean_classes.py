"""Dataclasses that share the code of their methods, for the processes that start on every host.

Up to Python 3.12 `dataclasses` writes and compiles some six functions for each class: a third of an agent's time to
load, and 1.2 MiB of its memory. But for `__init__` they differ in the names of fields alone, so here they are closures
over one code, and do the same. Python 3.13 compiles all functions of a class at once, and is left as it is.
"""

import dataclasses
import re
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from threading import get_ident
from typing import Any

_LAST = (3, 13)  # from here on `dataclasses` is made otherwise
_REPLACED = ("_repr_fn", "_frozen_get_del_attr", "_hash_fn", "_cmp_fn")  # a Python without one is left as it is
_FIELD = re.compile(r"self\.(\w+)")

_Method = Callable[..., Any]
_Fields = Sequence["dataclasses.Field[Any]"]
_running: set[tuple[int, int]] = set()  # objects whose text is being made, by thread: one may contain itself


def share_methods() -> None:
    """Make dataclasses so from now on; call it before other imports."""
    if sys.version_info >= _LAST or not all(hasattr(dataclasses, name) for name in _REPLACED):
        return
    compare = dataclasses._cmp_fn  # type: ignore[attr-defined]  # noqa: SLF001  as for the others below

    def compared(name: str, operator: str, own: str, other: str, **more: Any) -> _Method:  # noqa: ANN401  passed on
        """Equality; the order of a class is compiled as ever."""
        shared = operator == "=="
        method: _Method = _equality(_FIELD.findall(own)) if shared else compare(name, operator, own, other, **more)
        return method

    for name, function in zip(_REPLACED, (_text, _refusals, _hash, compared), strict=True):
        setattr(dataclasses, name, function)


def _text(fields: _Fields, _: dict[str, Any]) -> _Method:
    names = tuple(each.name for each in fields)

    def __repr__(self: object) -> str:  # noqa: N807  as it is called
        key = id(self), get_ident()
        if key in _running:
            return "..."
        _running.add(key)
        try:
            values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            return f"{self.__class__.__qualname__}({values})"
        finally:
            _running.discard(key)

    return __repr__


def _refusals(cls: Any, fields: _Fields, _: dict[str, Any]) -> tuple[_Method, _Method]:  # noqa: ANN401  any class
    names = tuple(each.name for each in fields)

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807  as above
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807  as above
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _hash(fields: _Fields, _: dict[str, Any]) -> _Method:
    values = _values([each.name for each in fields])

    def __hash__(self: object) -> int:  # noqa: N807  as above
        return hash(values(self))

    return __hash__


def _equality(names: Sequence[str]) -> _Method:
    values = _values(names)

    def __eq__(self: object, other: object) -> bool:  # noqa: N807  as above
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _values(names: Sequence[str]) -> Callable[[object], tuple[Any, ...]]:
    """What makes the tuple of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)

"""Every key of the configuration as its dataclass declares it: path, kind, bounds, default, sentence.

Reader, manual and tests are driven by this table, so a setting is declared once, next to the code that uses it.
"""

import dataclasses
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

from gpuwatch.config.chosen_file import PREFIX
from gpuwatch.model.duration import DurationOr, DurationSyntax, format_duration
from gpuwatch.model.setting import Among, Floor, Setting

NAME = "<name>"  # stands in a path for a name that the user chooses, such as a pool's

Path = tuple[str, ...]


class Kind(StrEnum):
    """What a key holds, as the noun of a sentence."""

    DURATION = "a duration"
    NUMBER = "a number"
    WHOLE = "a whole number"
    TEXT = "a text"
    SWITCH = "true or false"
    CHOICE = "a choice"
    LIST = "a list of texts"
    SECTION = "a section"
    NAMES = "a section of names"


_SCALARS = {float: Kind.NUMBER, Decimal: Kind.NUMBER, int: Kind.WHOLE, str: Kind.TEXT, bool: Kind.SWITCH}
NUMERIC = frozenset({Kind.DURATION, Kind.NUMBER, Kind.WHOLE})
GROUPS = frozenset({Kind.SECTION, Kind.NAMES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key. `default` is what holds where the key is not written; a group's is of no use."""

    path: Path
    kind: Kind
    sentence: str
    default: object
    bounds: tuple[object, ...] = ()
    choices: tuple[str, ...] = ()
    floor: Floor | None = None  # what the reader holds durations to

    @property
    def expected(self) -> str:
        """The valid values, for people: `a duration above 0s`, `one of stop, report`."""
        if self.kind is Kind.CHOICE:
            return f"one of {', '.join(self.choices)}"
        if self.kind is Kind.LIST and self.choices:
            return f"a list out of {', '.join(self.choices)}"
        low = None if self.floor is None else str(self.floor)
        low = low or next((f"at least {self.show(b.ge)}" for b in self.bounds if isinstance(b, Ge)), None)
        low = low or next((f"above {self.show(b.gt)}" for b in self.bounds if isinstance(b, Gt)), None)
        high = next((f"at most {self.show(b.le)}" for b in self.bounds if isinstance(b, Le)), None)
        high = high or next((f"below {self.show(b.lt)}" for b in self.bounds if isinstance(b, Lt)), None)
        if any(isinstance(b, MinLen) for b in self.bounds):
            low = "that is not empty"
        high = next((f"at most {b.max_length} characters long" for b in self.bounds if isinstance(b, MaxLen)), high)
        text = " ".join(filter(None, (self.kind.value, " and ".join(filter(None, (low, high))))))
        return ", or ".join((text, *self.choices))

    def show(self, value: object) -> str:
        """A value as one would write it: durations as `30m`."""
        if self.kind is Kind.DURATION and isinstance(value, int | float):
            return format_duration(value)
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(str, value))}]"
        return str(value)

    @property
    def dotted(self) -> str:
        """Return the key with dots, such as `pools.<name>.idle.timeout`."""
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        """The environment variable that overrides the key."""
        return variable(self.path)


def variable(path: Path) -> str:
    """Return the variable's name, such as `GPUWATCH_POOLS__<name>__IDLE__TIMEOUT`."""
    return PREFIX + "__".join(part if part == NAME else part.upper() for part in path)


def declared_keys(root: type) -> dict[Path, Key]:
    """All keys under a dataclass of settings, groups before what they hold."""
    return {key.path: key for key in _fields(root, ())}


def pattern(keys: Mapping[Path, Key], path: Path) -> Path | None:
    """The declared path that a written one follows: `NAME` in place of a chosen name; None: the key does not exist."""
    found: Path = ()
    for part in path:
        following = next((each for each in ((*found, part), (*found, NAME)) if each in keys), None)
        if following is None:
            return None
        found = following
    return found


def named_like(declared_path: Path, written: Path) -> Path:
    """The declared path with the names that a written one has at the same places."""
    return tuple(
        written[place] if part == NAME and place < len(written) else part for place, part in enumerate(declared_path)
    )


def values_at(held: object, path: Path, come: Path = ()) -> Iterator[tuple[Path, object]]:
    """What settings hold at a declared path, once for each name that the user chose; `come` is the path to `held`."""
    if not path:
        yield come, held
    elif path[0] != NAME:
        yield from values_at(getattr(held, path[0]), path[1:], (*come, path[0]))
    elif isinstance(held, Mapping):
        for name, value in held.items():
            yield from values_at(value, path[1:], (*come, name))


def _fields(cls: Any, prefix: Path) -> Iterator[Key]:  # noqa: ANN401  a dataclass has no type of its own
    """The keys of one dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    for each in dataclasses.fields(cls):
        default: object = each.default
        if each.default_factory is not dataclasses.MISSING:
            default = each.default_factory()
        yield from _key((*prefix, each.name), hints[each.name], default)


def _key(path: Path, hint: Any, default: object) -> Iterator[Key]:  # noqa: ANN401  a type hint has no type of its own
    """One key and what hangs under it."""
    plain, metadata = _unwrap(hint)
    sentence = next((each.sentence for each in metadata if isinstance(each, Setting)), "")
    bounds = tuple(each for each in metadata if isinstance(each, Ge | Gt | Le | Lt | MinLen | MaxLen))
    origin = get_origin(plain)
    if dataclasses.is_dataclass(plain):
        sentence = sentence or (plain.__doc__ or "").partition("\n")[0]
        yield Key(path=path, kind=Kind.SECTION, sentence=sentence, default=default)
        yield from _fields(plain, path)
    elif origin is dict:
        held = get_args(plain)[1]
        among = next((each.section for each in metadata if isinstance(each, Among)), None)
        if among is not None:
            yield from _key((*path[:-1], among, NAME), Annotated[held, Setting(sentence)], None)
            return
        yield Key(path=path, kind=Kind.NAMES, sentence=sentence, default=default)
        yield from _key(
            (*path, NAME), held if dataclasses.is_dataclass(held) else Annotated[held, Setting(sentence)], None
        )
    elif origin is Literal:
        yield Key(path=path, kind=Kind.CHOICE, sentence=sentence, default=default, choices=get_args(plain))
    elif origin in {tuple, list}:
        held = _unwrap(get_args(plain)[0])[0]
        choices = get_args(held) if get_origin(held) is Literal else ()
        yield Key(path=path, kind=Kind.LIST, sentence=sentence, default=default, choices=choices)
    else:
        words = next((each.words for each in metadata if isinstance(each, DurationOr)), ())
        timed = words or any(isinstance(each, DurationSyntax) for each in metadata)
        kind = Kind.DURATION if timed else _SCALARS[plain]
        bounds = (Gt(0),) if words else bounds
        floor = next((each for each in metadata if isinstance(each, Floor)), None)
        yield Key(path=path, kind=kind, sentence=sentence, default=default, bounds=bounds, choices=words, floor=floor)


def _unwrap(hint: Any) -> tuple[Any, tuple[object, ...]]:  # noqa: ANN401  likewise
    """The bare type of an annotated, possibly optional hint, and all metadata around it."""
    metadata: tuple[object, ...] = ()
    while True:
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            metadata = (*metadata, *more)
        elif get_origin(hint) in {Union, types.UnionType}:
            hint = next(each for each in get_args(hint) if each is not type(None) and get_origin(each) is not Literal)
        else:
            return hint, metadata

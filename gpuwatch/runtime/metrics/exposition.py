"""Samples as text, byte for byte what prometheus-client writes of them, at a fraction of its cost.

A page repeats its labels each second, so their text is kept from page to page. `head` and `labels_text` also write
other exporters' families; prometheus-client would rename their counters.
"""

from collections.abc import Iterable, Mapping

from prometheus_client.metrics_core import Metric as SampleFamily
from prometheus_client.utils import floatToGoString

from gpuwatch.model.gpu import Kind
from gpuwatch.runtime.metrics.family import INFO, Family

Labels = tuple[str | None, ...]
Sample = tuple[str, Labels, float]  # the family's name, its labels' values in order, the value

OPENMETRICS_END = "# EOF\n"
_SUFFIXES = {Kind.COUNTER: "_total", INFO: f"_{INFO}"}  # a type adds it to a family's name
_RENAMING = ("escaping=dots", "escaping=values")
_GO_DIFFERS = 1e6  # from here on Go writes an exponent where Python does not


class Exposition:
    """Writes pages of some families; their names and labels are of ASCII letters, digits and `_`."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        """The families by name, in the order of the page."""
        self._families = families
        self._heads: dict[tuple[str, bool], str] = {}
        # What the last page had: what a page no longer has, such as the labels of an ended process, is forgotten.
        self._braced: dict[tuple[str, ...], dict[Labels, str]] = {each.labels: {} for each in families.values()}
        self._large: dict[float, str] = {}

    def page(self, samples: Iterable[Sample], *, openmetrics: bool) -> bytes:
        """The families that have a sample; a label that is None is left out.

        Raises:
            KeyError: a sample's name is no family's.
            ValueError: a sample has more or fewer labels than its family.

        """
        braced: dict[tuple[str, ...], dict[Labels, str]] = {names: {} for names in self._braced}
        large: dict[float, str] = {}
        made = {name: (each.labels, braced[each.labels], list[str]()) for name, each in self._families.items()}
        for name, labels, value in samples:
            names, texts, lines = made[name]
            text = texts.get(labels)
            if text is None:
                text = texts[labels] = self._braced[names].get(labels) or _sorted_text(names, labels)
            if -_GO_DIFFERS < value < _GO_DIFFERS:
                number = repr(float(value))
            else:
                number = large[value] = large.get(value) or self._large.get(value) or _large(value)
            lines.append(f"{name}{text} {number}\n")
        self._braced, self._large = braced, large
        parts = [
            part for name, (*_, lines) in made.items() if lines for part in (self._head(name, openmetrics), *lines)
        ]
        return "".join((*parts, OPENMETRICS_END if openmetrics else "")).encode()

    def _head(self, name: str, openmetrics: bool) -> str:
        """What precedes the samples of a family."""
        known = self._heads.get((name, openmetrics))
        if known is None:
            family = self._families[name]
            known = head(name, family.help, family.kind, family.unit, openmetrics=openmetrics)
            self._heads[name, openmetrics] = known
        return known


def sample_family(family: Family) -> SampleFamily:
    """An empty family as prometheus-client wants it: without the suffix that the type adds."""
    name = family.name.removesuffix(_SUFFIXES.get(family.kind, ""))
    return SampleFamily(name, family.help, family.kind, family.unit)


def renames(content_type: str) -> bool:
    """Whether a format that prometheus-client chose writes other names than the catalogue's, which few clients want."""
    return content_type.endswith(_RENAMING)


def head(name: str, about: str, kind: str, unit: str = "", *, openmetrics: bool) -> str:
    """What precedes the samples of a family: HELP, TYPE, and in OpenMetrics the unit where there is one.

    OpenMetrics leaves out what a type adds to the name. It takes only names in `_total` for counters, and only counters
    for such names: the type of others is unknown there.
    """
    about = about.replace("\\", r"\\").replace("\n", r"\n")
    if not openmetrics:
        return f"# HELP {name} {about}\n# TYPE {name} {Kind.GAUGE if kind == INFO else kind}\n"
    if name.endswith("_total") != (kind == Kind.COUNTER):
        kind = "unknown"
    name, about = name.removesuffix(_SUFFIXES.get(kind, "")), about.replace('"', r"\"")
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n" + (f"# UNIT {name} {unit}\n" if unit else "")


def labels_text(labels: Iterable[tuple[str, str | None]]) -> str:
    """Labels as they follow the name, in this order, without those that are None; nothing if no label is left."""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels if value is not None)
    return f"{{{pairs}}}" if pairs else ""


def _sorted_text(names: tuple[str, ...], values: Labels) -> str:
    return labels_text(sorted(zip(names, values, strict=True)))


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _large(value: float) -> str:
    """A number that may need an exponent, infinity or NaN."""
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # prometheus-client declares none
    return text

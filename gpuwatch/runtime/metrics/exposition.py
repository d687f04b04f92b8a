"""Samples as text, byte for byte what prometheus-client writes of them, at a fraction of its cost, and in which form.

A page repeats its labels each second, so their text is kept from page to page. `head` and `labels_text` also write
other exporters' families; prometheus-client would rename their counters.

prometheus-client decides on Accept headers that are not of the usual kind. An agent that is asked by Prometheus,
browsers and curl never loads it: with its web server and its other parts it takes 1.2 MB and 0.04 s.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gpuwatch.model.gpu import Kind
from gpuwatch.runtime.metrics.family import INFO, Family

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as SampleFamily
    from prometheus_client.registry import Collector

Labels = tuple[str | None, ...]
# A name of `Family.series`, its labels' values in order, the value. The samples of a histogram follow each other.
Sample = tuple[str, Labels, float]

OPENMETRICS_END = "# EOF\n"
_SUFFIXES = {Kind.COUNTER: "_total", INFO: f"_{INFO}"}  # a type adds it to a family's name
_RENAMING = ("escaping=dots", "escaping=values")
_GO_DIFFERS = 1e6  # from here on Go writes an exponent where Python does not
_GO_DIGITS = 6  # at most so many stand before the point


class Exposition:
    """Writes pages of some families; their names and labels are of ASCII letters, digits and `_`."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        """The families by name, in the order of the page."""
        self._families = families
        self._series = [
            (series, labels, name) for name, each in families.items() for series, labels in each.series.items()
        ]
        self._heads: dict[tuple[str, bool], str] = {}
        # What the last page had: what a page no longer has, such as the labels of an ended process, is forgotten.
        self._braced: dict[tuple[str, ...], dict[Labels, str]] = {labels: {} for _, labels, _ in self._series}
        self._large: dict[float, str] = {}

    def page(self, samples: Iterable[Sample], *, openmetrics: bool) -> bytes:
        """The families that have a sample, as `blocks` has them."""
        return join_blocks(self.blocks(samples, openmetrics=openmetrics).values(), openmetrics=openmetrics)

    def blocks(self, samples: Iterable[Sample], *, openmetrics: bool) -> dict[str, str]:
        """The text of each family that has a sample, in order; a label that is None is left out.

        Raises:
            KeyError: a sample's name is no family's.
            ValueError: a sample has more or fewer labels than its family.

        """
        braced: dict[tuple[str, ...], dict[Labels, str]] = {names: {} for names in self._braced}
        large: dict[float, str] = {}
        written = {name: list[str]() for name in self._families}
        made = {series: (labels, braced[labels], written[name]) for series, labels, name in self._series}
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
        return {name: "".join((self._head(name, openmetrics), *lines)) for name, lines in written.items() if lines}

    def _head(self, name: str, openmetrics: bool) -> str:
        """What precedes the samples of a family."""
        known = self._heads.get((name, openmetrics))
        if known is None:
            family = self._families[name]
            known = head(name, family.help, family.kind, family.unit, openmetrics=openmetrics)
            self._heads[name, openmetrics] = known
        return known


def join_blocks(blocks: Iterable[str], *, openmetrics: bool) -> bytes:
    """A page of families' text."""
    return "".join((*blocks, OPENMETRICS_END if openmetrics else "")).encode()


def as_families(families: Mapping[str, Family], samples: Iterable[Sample]) -> "dict[str, SampleFamily]":
    """The same samples as prometheus-client wants them: each of these families that has one, by its full name.

    Raises:
        KeyError: a sample's name is no family's.
        ValueError: a sample has more or fewer labels than its family.

    """
    made = {name: _sample_family(family) for name, family in families.items()}
    known = {
        series: (made[name], labels) for name, family in families.items() for series, labels in family.series.items()
    }
    for series, values, value in samples:
        sample_family, labels = known[series]
        named = {key: text for key, text in zip(labels, values, strict=True) if text is not None}
        sample_family.add_sample(series, named, value)
    return {name: family for name, family in made.items() if family.samples}


def _sample_family(family: Family) -> "SampleFamily":
    """An empty family as prometheus-client wants it: without the suffix that the type adds."""
    from prometheus_client.metrics_core import Metric as SampleFamily  # noqa: PLC0415  loaded by few agents

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
    pairs = ",".join(f'{name}="{_escape_value(value)}"' for name, value in labels if value is not None)
    return f"{{{pairs}}}" if pairs else ""


def _sorted_text(names: tuple[str, ...], values: Labels) -> str:
    return labels_text(sorted(zip(names, values, strict=True)))


def _escape_value(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _large(value: float) -> str:
    """A number that may need an exponent, infinity or NaN."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    text = repr(float(value))
    point = text.find(".")
    if value < 0 or point <= _GO_DIGITS:
        return text
    return f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.") + f"e+{point - 1:02d}"


_OLD = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_PLAIN = "text/plain; version=1.0.0; charset=utf-8"
# One entry of the header, as Prometheus writes its own; names are escaped from version 1.0.0 on.
_ENTRY = re.compile(
    r"(?P<kind>application/openmetrics-text|text/plain|(?!application/openmetrics-text|text/plain)[^\s;,=\"]+)"
    r"(?:;\s*(?:version=(?P<version>0\.0\.[14]|1\.0\.0)|escaping=(?P<escaping>allow-utf-8|underscores)|q=[0-9.]+|v=b3))*"
)


def content_type_for(accept: str) -> str:
    """The content type of the answer, as prometheus-client's `choose_encoder` has it."""
    for entry in accept.split(",") if accept else ():
        found = _ENTRY.fullmatch(entry.strip())
        if found is None or entry.count("version=") > 1 or entry.count("escaping=") > 1:
            return _by_client(accept)[1]
        named: Mapping[str, str | None] = found.groupdict()
        kind, version, escaping = named["kind"], named["version"], named["escaping"] or "underscores"
        if kind == "application/openmetrics-text" and version is None:
            return _OPENMETRICS
        if version == "1.0.0" and kind in {"application/openmetrics-text", "text/plain"}:
            return f"{_PLAIN if kind == 'text/plain' else _OPENMETRICS}; escaping={escaping}"
    return _OLD


def rename_page(accept: str, families: "Collector") -> bytes:
    """A page with other names, by prometheus-client."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415  loaded by few agents

    registry = CollectorRegistry(auto_describe=False)
    registry.register(families)
    return _by_client(accept)[0](registry)


def _by_client(accept: str) -> tuple[Callable[[Any], bytes], str]:
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415  loaded by few agents

    encoder, content_type = choose_encoder(accept)
    return encoder, content_type

"""What dashboards are made of: panels in Grafana's own JSON (schema version 39: Grafana 11)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dashboards.source.currency import MONEY, converted, titled
from gpuwatch.cli.console import STATE_COLOURS

Json = dict[str, Any]
COLUMNS = 24
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
# One colour for one thing, on all dashboards, on the fleet page and on terminals: cli/console.py.
BLUE, ORANGE, OLIVE, PURPLE, RED, GREY, GREEN = (
    STATE_COLOURS[name].light for name in ("busy", "idle", "occupied", "parked", "stalled", "unknown", "healthy")
)
DARK = "dark-red"
COLOURS: dict[str, str] = {
    "busy": BLUE,
    "useful": BLUE,
    "idle": ORANGE,
    "occupied": OLIVE,
    "parked": PURPLE,
    "stalled": RED,
    "down": DARK,
    "unknown": GREY,
    "silent": "#5A5A5A",
}
DOING = {0: "unknown", 1: "idle", 2: "occupied", 3: "parked", 4: "stalled", 5: "busy"}  # as queries.py numbers them


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One PromQL expression. `now`: its value at the end of the time range alone; `rows`: as a table's rows."""

    expr: str
    legend: str = "__auto"
    now: bool = False
    rows: bool = False

    def json(self, ref: str) -> Json:
        """As a panel's target."""
        return {
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": "table" if self.rows else "time_series",
            "instant": self.now or self.rows,
            "legendFormat": self.legend,
            "range": not (self.now or self.rows),
            "refId": ref,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel without its place; `width` is of 24 columns, `height` of 30 pixels each."""

    kind: str
    title: str
    description: str
    queries: Sequence[Query]
    width: int
    height: int
    defaults: Json
    options: Json
    overrides: Sequence[Json] = ()
    transformations: Sequence[Json] = ()

    def json(self, number: int, left: int, top: int) -> Json:
        """In its place."""
        made: Json = {
            "datasource": SOURCE,
            "description": self.description,
            "fieldConfig": {"defaults": self.defaults, "overrides": list(self.overrides)},
            "gridPos": {"h": self.height, "w": self.width, "x": left, "y": top},
            "id": number,
            "options": self.options,
            "targets": [query.json(chr(ord("A") + place)) for place, query in enumerate(self.queries)],
            "title": self.title,
            "type": self.kind,
        }
        if self.transformations:
            made["transformations"] = list(self.transformations)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels under one heading, from left to right and downwards; folded ones ask nothing until opened."""

    title: str
    panels: Sequence[Panel]
    folded: bool = False


def steps(*limits: tuple[float | None, str]) -> Json:
    """Colours from each limit on."""
    return {"mode": "absolute", "steps": [{"color": colour, "value": limit} for limit, colour in limits]}


PLAIN = steps((None, "text"))


def fixed(colour: str) -> Json:
    """One colour whatever the value."""
    return steps((None, colour))


def override(name: str, **properties: Any) -> Json:  # noqa: ANN401  JSON
    """What is different for the field of that name; `__` in a property stands for its dot."""
    rows = [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": rows}


def matching(pattern: str, colour: str, mode: str = "fixed") -> Json:
    """One colour for the series with a matching name; `shades` of it if several would overlap."""
    color = {"id": "color", "value": {"fixedColor": colour, "mode": mode}}
    return {"matcher": {"id": "byRegexp", "options": f"/{pattern}/"}, "properties": [color]}


def coloured(names: Iterable[str] = COLOURS) -> list[Json]:
    """The same colour for the same state or use."""
    return [override(name, color={"fixedColor": COLOURS[name], "mode": "fixed"}) for name in names]


def words(table: Mapping[int, tuple[str, str]], none: tuple[str, str] | None = None) -> list[Json]:
    """A value's word and colour; `none` where there is no value."""
    options = {
        f"{value}": {"color": colour, "index": index, "text": text}
        for index, (value, (text, colour)) in enumerate(table.items())
    }
    found: list[Json] = [{"options": options, "type": "value"}]
    if none is not None:
        result = {"color": none[1], "index": len(table), "text": none[0]}
        found.append({"options": {"match": "null+nan", "result": result}, "type": "special"})
    return found


def states(none: tuple[str, str] | None = None) -> list[Json]:
    """Numbers of queries.py as words."""
    return words({number: (word, COLOURS[word]) for number, word in DOING.items()}, none)


def stat(  # noqa: PLR0913  each is something else about it
    title: str,
    description: str,
    expr: str,
    unit: str,
    *,
    limits: Json = PLAIN,
    trend: bool = True,
    width: int = 3,
    height: int = 4,
    decimals: int | None = None,
    mappings: Sequence[Json] = (),
    text: str = "auto",
    legend: str = "__auto",
    none: str = "-",
) -> Panel:
    """One number, with its trend behind it."""
    defaults: Json = {
        "color": {"mode": "thresholds"},
        "mappings": list(mappings),
        "noValue": none,
        "thresholds": limits,
        "unit": unit,
    }
    if decimals is not None:
        defaults["decimals"] = decimals
    return Panel(
        kind="stat",
        title=titled(title, unit),
        description=description,
        queries=[Query(expr=converted(expr, unit), legend=legend, now=not trend)],
        width=width,
        height=height,
        defaults=defaults,
        options={
            "colorMode": "value",
            "graphMode": "area" if trend else "none",
            "justifyMode": "center",
            "orientation": "auto",
            "percentChangeColorMode": "standard",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showPercentChange": False,
            "textMode": text,
            "wideLayout": True,
        },
    )


def series(  # noqa: PLR0913  likewise
    title: str,
    description: str,
    queries: Sequence[Query],
    unit: str,
    *,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    overrides: Sequence[Json] = (),
    limits: Json | None = None,
    most: float | None = None,
    table: bool = False,
    decimals: int | None = None,
    joined_seconds: float = 0,
) -> Panel:
    """Lines over time, or areas on top of each other; a line goes on over gaps shorter than `joined_seconds`."""
    custom: Json = {
        "axisSoftMin": 0,
        "drawStyle": "line",
        "fillOpacity": 60 if stacked else 8,
        "lineWidth": 0 if stacked else 1,
        "showPoints": "never",
        "spanNulls": round(joined_seconds * 1000) or False,
        "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
        "thresholdsStyle": {"mode": "off" if limits is None else "line"},
    }
    defaults: Json = {"color": {"mode": "palette-classic"}, "custom": custom, "min": 0, "unit": unit}
    if unit == MONEY:
        defaults["decimals"] = 2
    if limits is not None:
        defaults["thresholds"] = limits
    if most is not None:
        defaults["max"] = most
    if decimals is not None:
        defaults["decimals"] = decimals
    calcs = ["mean", "max", "lastNotNull"] if table else []
    return Panel(
        kind="timeseries",
        title=titled(title, unit),
        description=description,
        queries=[replace(query, expr=converted(query.expr, unit)) for query in queries],
        width=width,
        height=height,
        defaults=defaults,
        options={
            "legend": {
                "calcs": calcs,
                "displayMode": "table" if table else "list",
                "placement": "right" if table else "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        overrides=overrides,
    )


def timeline(
    title: str,
    description: str,
    query: Query,
    mappings: Sequence[Json],
    *,
    width: int = 24,
    height: int = 8,
    page: int = 20,
) -> Panel:
    """Who was what when, one line each."""
    return Panel(
        kind="state-timeline",
        title=title,
        description=description,
        queries=[query],
        width=width,
        height=height,
        defaults={
            "color": {"mode": "thresholds"},
            "custom": {"fillOpacity": 80, "lineWidth": 0},
            "mappings": list(mappings),
            "thresholds": PLAIN,
            "unit": "none",
        },
        options={
            "alignValue": "center",
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
            "mergeValues": True,
            "perPage": page,
            "rowHeight": 0.85,
            "showValue": "never",
            "tooltip": {"mode": "single", "sort": "none"},
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A table's column: the label or query's value (`Value #A`) that it shows, and how."""

    source: str
    title: str
    unit: str = ""
    properties: Json = field(default_factory=dict)


def filled(limits: Json) -> Json:
    """A column of ratios as bars, full at 1."""
    return {"custom__cellOptions": {"mode": "basic", "type": "gauge"}, "max": 1, "min": 0, "thresholds": limits}


def table(  # noqa: PLR0913  likewise
    title: str,
    description: str,
    queries: Sequence[str],
    columns: Sequence[Column],
    *,
    key: str = "",
    width: int = 12,
    height: int = 8,
    sort: str = "",
    ascending: bool = False,
) -> Panel:
    """The columns named and no other; several queries are joined by the label `key`, else by all that they share."""
    ways: list[Json] = []
    if len(queries) > 1 and not key:
        ways.append({"id": "merge", "options": {}})
    if key:
        ways.append({"id": "joinByField", "options": {"byField": key, "mode": "outer"}})
    ways.append({"id": "filterFieldsByName", "options": {"include": {"names": [each.source for each in columns]}}})
    order = {each.source: place for place, each in enumerate(columns)}
    names = {each.source: each.title for each in columns}
    ways.append({"id": "organize", "options": {"excludeByName": {}, "indexByName": order, "renameByName": names}})
    money = {each.source for each in columns if each.unit == MONEY}
    units = [MONEY if money & {"Value", f"Value #{chr(ord('A') + place)}"} else "" for place in range(len(queries))]
    overrides = []
    for each in columns:
        document = {**({"unit": each.unit} if each.unit else {}), **each.properties}
        if each.unit == MONEY:
            document.setdefault("decimals", 2)
        if document:
            overrides.append(override(each.title, **document))
    return Panel(
        kind="table",
        title=f"{title}, money in $currency" if money else title,
        description=description,
        queries=[Query(expr=converted(expr, unit), rows=True) for expr, unit in zip(queries, units, strict=True)],
        width=width,
        height=height,
        defaults={
            "color": {"mode": "thresholds"},
            "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True, "minWidth": 80},
            "noValue": "-",
            "thresholds": PLAIN,
            "unit": "none",
        },
        options={
            "cellHeight": "sm",
            "showHeader": True,
            "sortBy": [{"desc": not ascending, "displayName": sort}] if sort else [],
        },
        overrides=overrides,
        transformations=ways,
    )


def bars(  # noqa: PLR0913  likewise
    title: str,
    description: str,
    query: Query,
    unit: str,
    *,
    width: int = 12,
    height: int = 8,
    overrides: Sequence[Json] = (),
    limits: Json = PLAIN,
    most: float | None = None,
    decimals: int | None = None,
    colour: str = "thresholds",
) -> Panel:
    """One bar for each series, of its value now."""
    defaults: Json = {"color": {"mode": colour}, "min": 0, "noValue": "-", "thresholds": limits, "unit": unit}
    if most is not None:
        defaults["max"] = most
    if decimals is not None:
        defaults["decimals"] = decimals
    return Panel(
        kind="bargauge",
        title=title,
        description=description,
        queries=[query],
        width=width,
        height=height,
        defaults=defaults,
        options={
            "displayMode": "basic",
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": False},
            "maxVizHeight": 40,
            "minVizHeight": 16,
            "minVizWidth": 8,
            "namePlacement": "auto",
            "orientation": "horizontal",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showUnfilled": True,
            "sizing": "auto",
            "valueMode": "color",
        },
        overrides=overrides,
    )

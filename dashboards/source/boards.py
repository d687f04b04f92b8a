"""A whole dashboard: its variables, its links to the others, and every panel in its place."""

from collections.abc import Sequence

from dashboards.source.parts import COLUMNS, SOURCE, Json, Panel, Row

TAG = "gpuwatch"
UIDS = {name: f"gpuwatch-{name}" for name in ("fleet", "node", "cost", "controller")}


def node_link(title: str = "Open the machine's dashboard") -> Json:
    """From a machine's id in a table to its dashboard."""
    where = f"/d/{UIDS['node']}?var-datasource=${{datasource}}&var-node=${{__value.raw:percentencode}}"
    link = {"targetBlank": False, "title": title, "url": f"{where}&${{__url_time_range}}"}
    return {"custom__width": 175, "links": [link]}


def variable(
    name: str,
    label: str,
    query: str,
    description: str,
    *,
    several: bool = True,
    hidden: bool = False,
) -> Json:
    """A variable: the values that Prometheus has within the time range. All are selected by default."""
    made: Json = {
        "allowCustomValue": False,
        "datasource": SOURCE,
        "description": description,
        "hide": 2 if hidden else 0,
        "includeAll": several,
        "label": label,
        "multi": several,
        "name": name,
        "options": [],
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2,
        "regex": "",
        "sort": 7,
        "type": "query",
    }
    if several:
        made["allValue"] = ".*"
        made["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return made


_DATASOURCE: Json = {
    "description": "Prometheus, or what speaks its language",
    "hide": 0,
    "includeAll": False,
    "label": "Data source",
    "multi": False,
    "name": "datasource",
    "options": [],
    "query": "prometheus",
    "refresh": 1,
    "regex": "",
    "type": "datasource",
}
JOB = variable(
    "job", "Controllers", "label_values(gpuwatch_controller_info, job)", "The job that scrapes the controllers"
)
AGENTS = variable("agents", "Agents", "label_values(gpuwatch_node_info, job)", "The job that scrapes the agents")
CLUSTER = variable(
    "cluster",
    "Cluster",
    'label_values(gpuwatch_controller_info{job=~"$job"}, cluster)',
    "The label `cluster` of your scrape configuration, where several Prometheus meet in one data source",
)
FLEET = variable(
    "fleet",
    "Fleet",
    'label_values(gpuwatch_controller_info{job=~"$job", cluster=~"$cluster"}, fleet)',
    "The setting `fleet` of the controllers",
)
POOL = variable(
    "pool",
    "Pool",
    'label_values(gpuwatch_fleet_nodes{job=~"$job", cluster=~"$cluster", fleet=~"$fleet"}, pool)',
    "Pools of machines",
)

CURRENCY = variable(
    "currency",
    "Currency",
    'label_values(gpuwatch_currency_usd{job=~"$job", cluster=~"$cluster", fleet=~"$fleet"}, currency)',
    "The setting `currency` of the controllers, and its rate",
    several=False,
)


def _links(name: str) -> list[Json]:
    """To the other dashboards, with the time range and what is chosen."""
    return [
        {
            "asDropdown": False,
            "icon": "dashboard",
            "includeVars": True,
            "keepTime": True,
            "tags": [],
            "targetBlank": False,
            "title": other.capitalize(),
            "tooltip": f"gpuwatch: {other}",
            "type": "link",
            "url": f"/d/{uid}",
        }
        for other, uid in UIDS.items()
        if other != name
    ]


def board(name: str, description: str, variables: Sequence[Json], rows: Sequence[Row], *, since: str) -> Json:
    """The dashboard as Grafana imports it."""
    return {
        "annotations": {"list": []},
        "description": description,
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": None,
        "links": _links(name),
        "panels": _laid_out(rows),
        "refresh": "1m",
        "schemaVersion": 39,
        "tags": [TAG, "gpu"],
        "templating": {"list": [_DATASOURCE, *variables]},
        "time": {"from": since, "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": f"gpuwatch: {name}",
        "uid": UIDS[name],
        "version": 1,
        "weekStart": "",
    }


def _laid_out(rows: Sequence[Row]) -> list[Json]:
    """Each row's heading and under it its panels; a folded row keeps them within."""
    made: list[Json] = []
    number, top = 1, 0
    for row in rows:
        heading: Json = {
            "collapsed": row.folded,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top},
            "id": number,
            "panels": [],
            "title": row.title,
            "type": "row",
        }
        made.append(heading)
        placed, end = _placed(row.panels, number + 1, top + 1)
        (heading["panels"] if row.folded else made).extend(placed)
        number += 1 + len(placed)
        top = top + 1 if row.folded else end
    return made


def _placed(panels: Sequence[Panel], number: int, top: int) -> tuple[list[Json], int]:
    """From left to right, and under the highest of a line; and where the next line begins."""
    made: list[Json] = []
    left = height = 0
    for panel in panels:
        if left + panel.width > COLUMNS:
            left, top, height = 0, top + height, 0
        made.append(panel.json(number + len(made), left, top))
        left, height = left + panel.width, max(height, panel.height)
    return made, top + height

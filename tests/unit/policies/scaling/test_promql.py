"""policies/scaling/promql.py: plain mistakes in PromQL are found without a server, and nothing right is refused."""

import json
from collections.abc import Iterator

import promql_parser
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.policies.scaling.promql import trouble
from tests.support.paths import ROOT


def _shipped() -> Iterator[str]:
    """Every expression that gpuwatch itself ships."""
    for name in ("gpuwatch.yml", "recording.yml"):
        for group in yaml.load((ROOT / "alerts" / name).read_text(encoding="utf-8"), yaml.CSafeLoader)["groups"]:
            yield from (rule["expr"] for rule in group["rules"])
    for path in sorted((ROOT / "dashboards").glob("*.json")):
        yield from _targets(json.loads(path.read_text(encoding="utf-8")))


def _targets(value: object) -> Iterator[str]:
    """The queries of a dashboard."""
    if isinstance(value, dict):
        if isinstance(value.get("expr"), str):
            yield value["expr"]
        for each in value.values():
            yield from _targets(each)
    elif isinstance(value, list):
        for each in value:
            yield from _targets(each)


SHIPPED = sorted(set(_shipped()))
RIGHT = (
    "sum(queue_length)",
    "-a",
    "a * -1",
    "2 ^ -1 ^ b",
    "a > bool 1",
    "a offset -5m",
    "rate(a[5m:30s] offset 1h)",
    "a @ start()",
    "max_over_time(a[1h:])",
    "sum(a) by (pool)",
    "sum by (pool) (a) / on (pool) group_left () b",
    "topk(3, a) without (x)",
    "quantile(0.9, a)",
    """count_values("v", a{x=~'y|z', w!=""})""",
    """{__name__=~"a.+"}""",
    """{"queue.length", x="y"}""",
    "a unless ignoring (x) b or c",
    "1.5e3 + 0x1F + Inf + NaN",
    "a # how many wait\n+ b",
    'label_replace(a, `x`, \'$1\', "y", "(.*)")',
    "histogram_quantile(0.9, sum by (le) (rate(a_bucket[5m])))",
    "a default 0",
)


@pytest.mark.parametrize("expression", RIGHT)
def test_what_is_right_is_not_refused(expression: str) -> None:
    """Also what VictoriaMetrics alone knows."""
    assert trouble(expression) is None


def test_no_shipped_expression_is_refused() -> None:
    """Those of alerts and dashboards."""
    assert len(SHIPPED) > 100
    assert {each: found for each in SHIPPED if (found := trouble(each)) is not None} == {}


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("  ", "is empty"),
        ("sum(a", "'(' at character 4 that is not closed"),
        ("sum a)", "')' at character 6 without a bracket"),
        ("rate(a[5m)", "')' at character 10 without a bracket that it closes"),
        ('a{x="y}', "a quote"),
        ("a{x=y}", "label values stand in quotes"),
        ("a +", "ends with '+'"),
        ("* a", "begins with '*'"),
        ("a b", "'a' and 'b' next to each other"),
        ("a + * b", "nothing after '+'"),
        ("a ; b", "';' at character 3"),
    ],
)
def test_a_plain_mistake_is_named_with_its_place(expression: str, words: str) -> None:
    """So that `config check` finds it."""
    assert words in (trouble(expression) or "")


@given(st.sampled_from(SHIPPED), st.data())
def test_prometheus_refuses_whatever_is_refused(expression: str, data: st.DataObject) -> None:
    """A shipped expression from which one character was taken: no refusal of what the real parser accepts."""
    at = data.draw(st.integers(0, len(expression) - 1))
    broken = expression[:at] + expression[at + 1 :]
    if "$" in broken or trouble(broken) is None:
        return
    with pytest.raises(ValueError, match=r"."):
        promql_parser.parse(broken)

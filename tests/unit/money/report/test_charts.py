"""Charts as inline SVG: well-formed, inside their frame, readable, and true to their numbers."""

import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.money.report import charts
from gpuwatch.money.report.charts import Axis, Band, Item

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'n' >"
PLAIN = Axis(name="things", write="{:g}".format, ticks=(1, 10, 100))
NUMBERS = st.floats(-1e6, 1e9)
ITEMS = st.lists(st.builds(Item, label=st.text("abc=<&", max_size=12), x=NUMBERS, y=NUMBERS), max_size=7)
LAYERS = st.lists(st.lists(st.floats(0, 1e6), min_size=3, max_size=3), max_size=4)


def parsed(svg: str) -> ET.Element:
    """The chart as XML."""
    return ET.fromstring(svg)  # noqa: S314  our own text


def texts(svg: str) -> list[str]:
    """What stands in it."""
    return [each.text or "" for each in parsed(svg).iter("text")]


def coordinates(root: ET.Element) -> Iterator[tuple[str, float]]:
    """Every place at which something is drawn, with its axis."""
    for each in root.iter():
        for name, value in each.attrib.items():
            if name in {"x", "x1", "x2", "cx", "y", "y1", "y2", "cy"}:
                yield name.strip("c12"), float(value)
        if each.tag == "rect":
            yield "x", float(each.attrib["x"]) + float(each.attrib["width"])
            yield "y", float(each.attrib["y"]) + float(each.attrib["height"])
            assert float(each.attrib["width"]) >= 0
            assert float(each.attrib["height"]) >= 0
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", each.attrib.get("d", "")):
            yield from (("x", float(x)), ("y", float(y)))


def drawings(items: list[Item], layers: list[list[float]]) -> list[str]:
    """One of each chart."""
    bands = [Band(label=f"layer {number}", values=values, colour=number) for number, values in enumerate(layers)]
    heights = [abs(item.x) for item in items] or [0.0]
    edges = [10.0**number for number in range(len(heights) + 1)]
    return [
        charts.bars(HOSTILE, HOSTILE, items, marks=items[:2], end=100.0),
        charts.points(HOSTILE, HOSTILE, items, PLAIN, PLAIN),
        charts.areas(HOSTILE, HOSTILE, bands, PLAIN, [(0.0, HOSTILE), (1.0, "end")]),
        charts.histogram(HOSTILE, HOSTILE, edges, heights, items, PLAIN, PLAIN),
    ]


@given(items=ITEMS, layers=LAYERS)
@example(items=[Item(label="<" * 10, x=1.0)] * 5, layers=[])  # points in one place, with more names than have room
def test_whatever_is_drawn_lies_inside_the_frame(items: list[Item], layers: list[list[float]]) -> None:
    """For any numbers, negative and none among them, each chart is XML with a title and a description."""
    for svg in drawings(items, layers):
        root = parsed(svg)
        _, _, width, height = map(float, root.attrib["viewBox"].split())

        assert [root[0].tag, root[0].text, root[1].tag, root[1].text] == ["title", HOSTILE, "desc", HOSTILE]
        assert root.attrib["role"] == "img"
        for axis, value in coordinates(root):
            assert -0.5 <= value <= (width if axis == "x" else height) + 0.5, (axis, value, svg)


def boxes(svg: str) -> list[tuple[str, float, float, float, float]]:
    """Each text with left, top, right and bottom, at 7.8 a letter: no usual font is wider on the mean."""
    found = []
    for each in parsed(svg).iter("text"):
        words, x, y = each.text or "", float(each.attrib["x"]), float(each.attrib["y"])
        width = 7.8 * len(words)
        left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[each.attrib["text-anchor"]]
        found.append((words, left, y - 11, left + width, y + 3))
    return found


def assert_apart(svg: str) -> None:
    """No two texts share a place."""
    for one, other in combinations([box for box in boxes(svg) if box[0]], 2):
        beside = one[3] <= other[1] or other[3] <= one[1]
        assert beside or one[4] <= other[2] or other[4] <= one[2], (one, other)


@given(st.integers(1, 62), st.sampled_from(["08:00", "2026-03-15", "Mon", "2026-03"]))
def test_moments_never_meet_and_are_evenly_apart(count: int, words: str) -> None:
    """A day of hours, a month of days: as many are written as have room, the first one always."""
    moments = [(place / count, words) for place in range(count)]
    svg = charts.areas("t", "d", [Band(label="useful", values=[1.0] * count, colour=0)], PLAIN, moments)
    places = [(box[1] + box[3]) / 2 for box in boxes(svg) if box[0] == words]

    assert_apart(svg)
    assert places
    assert len(places) > 1 or count == 1
    inner = [after - before for before, after in pairwise(places[1:-1])]
    assert inner == pytest.approx([inner[0]] * len(inner) if inner else [], abs=0.2)


@given(
    st.lists(st.tuples(st.floats(0, 0.1), st.floats(0, 1e7)), min_size=1, max_size=5),
    st.sampled_from(["policy", "timeout=30m"]),
)
def test_words_at_points_meet_neither_each_other_nor_the_axes(places: list[tuple[float, float]], name: str) -> None:
    """Whatever the numbers: long ones on the axes, and points in every corner."""
    items = [Item(label=f"{name} {number}", x=x, y=y) for number, (x, y) in enumerate(places)]
    axes = Axis(name="restarts per node-day", write="{:,.5f}".format), Axis(name="USD", write="{:.3g}".format)
    assert_apart(charts.points("t", "d", items, *axes))


@given(st.lists(st.text("abcWM-=", min_size=1, max_size=90), min_size=1, max_size=6))
def test_a_name_never_meets_its_number(names: list[str]) -> None:
    """A name that is longer than its room is cut, with a sign that it is."""
    svg = charts.bars("t", "d", [Item(label=name, x=5.0, written="1,234.56") for name in names])

    assert_apart(svg)
    assert all(text in {"1,234.56", *names} or text.endswith("…") for text in texts(svg))


def test_lengths_under_a_histogram_never_meet() -> None:
    """Ticks that lie close together are left out."""
    ticks = tuple(60.0 * 1.3**number for number in range(40))
    x = Axis(name="length", write="{:,.1f}s".format, ticks=ticks)
    assert_apart(charts.histogram("t", "d", [60.0, 600.0, 6e3, 6e4, 6e5], [1.0, 5.0, 3.0, 2.0], [], x, PLAIN))


def test_names_are_escaped() -> None:
    """A hostile label is text in every chart, never a tag."""
    for svg in drawings([Item(label=HOSTILE, x=1.0, y=1.0)], [[1.0, 2.0, 3.0]]):
        assert "<script" not in svg
        assert HOSTILE in "".join(parsed(svg).itertext())


def test_bars_are_as_long_as_their_numbers_and_cut_at_the_end() -> None:
    """Two is twice one; what is beyond the end is as long as the end, and below 0 nothing is drawn."""
    values = {"one": 1.0, "two": 2.0, "far": 80.0, "lost": -3.0}
    svg = charts.bars("t", "d", [Item(label=name, x=x, written=f"{x:g}") for name, x in values.items()], end=4.0)
    widths = [float(each.attrib["width"]) for each in parsed(svg).iter("rect")]

    assert widths[1] == pytest.approx(2 * widths[0], abs=0.2)
    assert widths[2] == pytest.approx(4 * widths[0], abs=0.4)
    assert widths[3] == 0
    assert texts(svg) == ["one", "1", "two", "2", "far", "80", "lost", "-3"]


def test_points_at_one_place_share_a_label_and_no_two_labels_meet() -> None:
    """Points close to each other are told apart by words that stand beside each other."""
    places = [(1.0, 5.0), (1.0, 5.0), (1.02, 5.0), (1.0, 5.05), (1.05, 5.02), (3.0, 1.0)]
    items = [Item(label=f"policy number {number}", x=x, y=y) for number, (x, y) in enumerate(places)]
    root = parsed(charts.points("t", "d", items, PLAIN, PLAIN))
    labels = [each for each in root.iter("text") if (each.text or "").startswith("policy")]
    boxes = [(float(each.attrib["x"]), float(each.attrib["y"]), 7.0 * len(each.text or "")) for each in labels]

    assert len(list(root.iter("circle"))) == 5
    assert "policy number 0, policy number 1" in [each.text for each in labels]
    for (x, y, width), (other_x, other_y, other_width) in combinations(boxes, 2):
        apart = abs(y - other_y) >= 14 or x + width <= other_x or other_x + other_width <= x
        assert apart, boxes


def test_layers_stand_on_each_other() -> None:
    """The second begins where the first ends, so that both together are as high as their sum."""
    bands = [Band(label="low", values=[1.0, 2.0], colour=0), Band(label="high", values=[3.0, 2.0], colour=1)]
    paths = [each.attrib["d"] for each in parsed(charts.areas("t", "d", bands, PLAIN, [])).iter("path")]
    tops = [[float(y) for _, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)] for path in paths]
    floor = tops[0][-1]

    assert tops[1][0] == tops[1][2], "four in both steps"
    assert floor - tops[1][0] == pytest.approx(4 * (floor - tops[0][0]), abs=0.4)
    assert tops[1][-1] == tops[0][0], "the second's floor is the first's top"


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e9))
def test_ticks_are_few_round_numbers_between_the_ends(low: float, span: float) -> None:
    """Evenly spaced by 1, 2 or 5 times a power of ten, at most seven of them."""
    found = list(charts.ticks(low, low + span))
    steps = {f"{after - before:.1e}"[0] for before, after in pairwise(found)}

    assert 1 <= len(found) <= 7
    assert all(low - 1e-6 * span <= each <= low + span * (1 + 1e-6) + 1e-3 for each in found)
    if abs(low) < 1e3 * span:  # else the difference is lost in rounding
        assert steps <= {"1", "2", "5"}


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_every_colour_can_be_read_on_its_paper(mode: int) -> None:
    """Each stands out by 4.5 to 1, as text must, in light and dark."""
    block = charts.STYLE.split("@media")[mode]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
    paper = colours.pop("paper")
    del colours["line"]

    assert len(colours) == charts.COLOURS + 2, "and ink and faint"
    for colour in colours.values():
        bright, dim = sorted([luminance(colour), luminance(paper)], reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, colour

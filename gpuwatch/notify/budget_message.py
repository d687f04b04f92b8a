"""Pure: the message about a budget that passed one of its thresholds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from gpuwatch.model.budget import BudgetState, Crossing
from gpuwatch.model.money import format_usd
from gpuwatch.notify.formats import SCHEMA, wording_as_html, wording_as_text
from gpuwatch.notify.wording import Item, Language, Wording, printable, translate_wording, when

_WORDS = {"actual": "spent", "forecast": "forecast as usual", "rate": "at the present rate"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetMessage:
    """One budget with the thresholds that it passed since the message before; a `Content` of deliveries."""

    state: BudgetState
    crossings: tuple[Crossing, ...]
    fleet: str
    made_at: datetime
    zone: ZoneInfo
    page: str | None = None
    language: Language = "en"

    @property
    def title(self) -> str:
        """The subject, in the reader's language."""
        return self._wording().subject

    def _title(self) -> str:
        """The highest threshold: of what is spent, before what is forecast. Short, so that a header is not folded."""
        state, top = self.state, highest(self.crossings)
        name, whole, by = (
            printable(state.name),
            format_usd(state.usd_per_month),
            {"actual": "", "forecast": "forecast ", "rate": "at the present rate "}[top.on],
        )
        usd = {"actual": state.spent_usd, "forecast": state.forecast_usd, "rate": state.lasting_rate_usd}[top.on]
        end = " spent" if top.on == "actual" else ""
        return f"gpuwatch: budget {name} {by}past {share(top)}: {format_usd(usd)} of {whole}{end}"

    def text(self) -> str:
        """Return the whole message as text."""
        return wording_as_text(self._wording())

    def chat(self, *, links: bool = True) -> str:
        """The same: it has no snooze link."""
        del links
        return self.text()

    def html(self, *, mail: bool) -> str:
        """The same for a mail and a file."""
        del mail
        return wording_as_html(self._wording())

    def parts(self) -> Sequence["BudgetMessage"]:
        """Return the message as its only part."""
        return (self,)

    def document(self, key: str) -> dict[str, Any]:
        """Keys are only ever added while `schema` stays the same."""
        state = self.state
        return {
            "schema": SCHEMA,
            "key": key,
            "event": "budget",
            "fleet": self.fleet,
            "made_at": self.made_at.isoformat(),
            "title": self._title(),
            "page": self.page,
            "nodes": [],
            "budget": {
                "name": state.name,
                "scope": str(state.scope),
                "owner": state.scope.owner,
                "month": state.month,
                "usd_per_month": str(state.usd_per_month),
                "spent_usd": _text(state.spent_usd),
                "usd_per_hour": _text(state.usd_per_hour),
                "forecast_usd": _text(state.forecast_usd),
                "present_rate_usd": _text(state.present_rate_usd),
                "lasting_rate_usd": _text(state.lasting_rate_usd),
                "change": state.change,
                "lower_usd": _text(state.lower_usd),
                "upper_usd": _text(state.upper_usd),
                "reaches_at": None if state.reaches_at is None else state.reaches_at.astimezone(UTC).isoformat(),
                "unpriced_hours": state.unpriced_hours,
                "thresholds": [asdict(each) | {"at": each.at.isoformat()} for each in self.crossings],
            },
        }

    def _wording(self) -> Wording:
        state = self.state
        wording = Wording(
            subject=self._title(),
            opening=_opening(state, self.crossings),
            items=(Item(head=f"{printable(state.name)}: {printable(str(state.scope))}", facts=tuple(self._facts())),),
            more=None,
            hints_title="What now",
            hints=(
                "Who spends it: `gpuwatch cost --by owner`; what is idle: `gpuwatch status`.",
                f"The whole budget: `gpuwatch budget`; its settings: `budgets.{printable(state.name)}`.",
                "No machine is stopped because of this message.",
            ),
            footer=f"Sent by gpuwatch, fleet {printable(self.fleet)}, {when(self.made_at, self.zone)}.",
            page=self.page,
        )
        return translate_wording(wording, self.language)

    def _facts(self) -> Iterator[tuple[str, str]]:
        state = self.state
        whole = format_usd(state.usd_per_month)
        if state.spent_usd is not None:
            least = "at least " if state.unpriced_hours else ""
            part = _percent(state.spent_usd / state.usd_per_month)
            yield "Spent", f"{least}{format_usd(state.spent_usd)} of {whole} ({part}) in {state.month}"
        if state.usd_per_hour is not None:
            yield "Now", f"{format_usd(state.usd_per_hour)} an hour"
        if state.forecast_usd is not None:
            part = _percent(state.forecast_usd / state.usd_per_month)
            bounds = ""
            if state.lower_usd is not None and state.upper_usd is not None:
                bounds = f", with 80 % between {format_usd(state.lower_usd)} and {format_usd(state.upper_usd)}"
            yield "As usual", f"{format_usd(state.forecast_usd)} ({part}) at the end of {state.month}{bounds}"
        if state.present_rate_usd is not None:
            part = _percent(state.present_rate_usd / state.usd_per_month)
            yield "Present rate", f"{format_usd(state.present_rate_usd)} ({part}), if what runs now runs on"
        if state.change is not None:
            yield "Changed", printable(state.change)
        if state.reaches_at is not None:
            yield "All spent", f"at the forecast's pace {when(state.reaches_at, self.zone)}"
        if state.blocked is not None:
            yield "In force", "no machine is added to it"
        if state.hastening is not None:
            yield "In force", f"idle machines wait {state.hastening.wait_seconds / 60:.0f} minutes at most"
        if state.unpriced_hours:
            yield (
                "Not known",
                f"{state.unpriced_hours:.1f} machine-hours have no price: the sums are the least it can be",
            )
        yield "Passed", "; ".join(f"{share(each)} {_WORDS[each.on]}" for each in self.crossings)


def highest(crossings: Sequence[Crossing]) -> Crossing:
    """What matters most of these: what is spent, then as usual, then the present rate; then the larger part."""
    return max(crossings, key=lambda each: (each.on == "actual", each.on == "forecast", each.ratio))


def share(crossing: Crossing) -> str:
    """Its part of the budget, such as `80 %` or `99.5 %`."""
    return f"{100 * crossing.ratio:.2f}".rstrip("0").rstrip(".") + " %"


def _percent(ratio: Decimal) -> str:
    return f"{100 * ratio:.1f} %"


def _text(value: Decimal | None) -> str | None:
    return None if value is None else str(value)


def _opening(state: BudgetState, crossings: Sequence[Crossing]) -> str:
    """One sentence for each way of counting, at its highest threshold."""
    whole, sentences = format_usd(state.usd_per_month), list[str]()
    tops: Mapping[str, Crossing] = {each.on: each for each in sorted(crossings, key=lambda each: each.ratio)}
    if "actual" in tops:
        spent = format_usd(state.spent_usd)
        sentences.append(f"{spent} are spent in {state.month}, which is past {share(tops['actual'])} of {whole}.")
    if "forecast" in tops:
        ahead = format_usd(state.forecast_usd)
        sentences.append(
            f"{state.month} is forecast to end at {ahead} as usual, which is past {share(tops['forecast'])} of {whole}."
        )
    if "rate" in tops:
        ahead = format_usd(state.lasting_rate_usd)
        sentences.append(
            f"At the rate of the last three days {state.month} ends at {ahead}, which is past {share(tops['rate'])} of "
            f"{whole}."
        )
    return f"Budget {printable(state.name)}: {' '.join(sentences)}"

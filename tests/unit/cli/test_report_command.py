"""`gpuwatch report`: which days, which form, where to; and the settings of what is sent by itself."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.ledger import LedgerSettings
from gpuwatch.model.decision import Verb
from gpuwatch.money.report.document import report_document
from gpuwatch.money.report.history import ActionHistory
from tests.support.builders.configurations import mistakes, read
from tests.support.builders.ledger_fixture import a_fortnight, a_report, at
from tests.support.real.postgresql import Place, postgresql

Run = Callable[..., Result]
BEGIN, END = date(2026, 3, 14), at(date(2026, 3, 15), 2)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a day and two hours."""
    path = tmp_path_factory.mktemp("story") / "ledger.db"
    place = Place(LedgerSettings(path=str(path)))
    a_fortnight(place.open(), until=END)
    place.close()
    return path


@pytest.fixture
def run(ledger: Path, tmp_path: Path) -> Run:
    """The command, with a configuration that has one destination."""
    config = tmp_path / "gpuwatch.yaml"
    config.write_text(
        f"ledger: {{path: {ledger}}}\ninterval: 1h\ncost: {{timezone: Europe/Berlin, tags: [team]}}\n"
        f"report: {{receivers: {{archive: {{file: {{path: {tmp_path}/%Y-%m-%d.txt}}}}}}}}\n"
    )

    def report_of(*arguments: str) -> Result:
        return CliRunner().invoke(commands, ["report", *arguments, "--config", str(config)])

    return report_of


@pytest.mark.parametrize(
    ("form", "begin"),
    [
        ((), "GPU report for Saturday 2026-03-14\n"),
        (("--html",), "<!DOCTYPE html>"),
        (("--json",), '{"schema": "gpuwatch.report/2",'),
    ],
)
def test_each_form_is_printed(run: Run, form: tuple[str, ...], begin: str) -> None:
    """Text without an option, else what was asked for."""
    done = run("--day", "2026-03-14", *form)

    assert (done.exit_code, done.output[: len(begin)]) == (0, begin)


@pytest.mark.parametrize(
    ("days", "since", "until"),
    [
        (("--day", "2026-03-14"), "2026-03-13T23:00:00Z", "2026-03-14T23:00:00Z"),
        (("--month", "2026-03"), "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"),
        (("--year", "2026"), "2025-12-31T23:00:00Z", "2026-12-31T23:00:00Z"),
        (("--from", "2026-03-14", "--to", "2026-03-15"), "2026-03-13T23:00:00Z", "2026-03-15T23:00:00Z"),
    ],
)
def test_any_days_can_be_asked_for(run: Run, days: tuple[str, ...], since: str, until: str) -> None:
    """A day, a month, a year, or from one day to another, in the zone of cost.timezone."""
    result = json.loads(run(*days, "--json").output)

    assert (result["since"], result["until"], result["timezone"]) == (since, until, "Europe/Berlin")


def test_without_days_it_is_yesterday(run: Run) -> None:
    """Whole, by the clocks of the place."""
    result = json.loads(run("--json").output)

    assert result["over"] is True
    assert result["unit"] == "hour"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--day", "2026-03-14", "--month", "2026-03"), "--day, --month, --year and --from/--to exclude each other"),
        (("--year", "2026", "--to", "2026-03-01"), "--day, --month, --year and --from/--to exclude each other"),
        (("--day", "tomorrow"), "'tomorrow' is not a day such as 2026-03-01"),
        (("--year", "26"), "'26' is not a year such as 2026"),
        (("--day", "2999-01-30"), "'2999-01-30' lies in the future"),
        (("--year", "0026"), "'0026' lies before 2000-01-01"),
        (("--html", "--json"), "--json excludes --html"),
        (("--send", "nobody"), "'nobody' is not a receiver; report.receivers has archive"),
    ],
)
def test_what_is_wrong_is_told(run: Run, arguments: tuple[str, ...], words: str) -> None:
    """With what would be right, and exit status 2."""
    done = run(*arguments)

    assert done.exit_code == 2
    assert words in " ".join(done.output.split())


def test_a_destination_can_be_tried(run: Run, tmp_path: Path) -> None:
    """--send delivers at once; what the controller sends by itself does not change."""
    done = run("--day", "2026-03-14", "--send", "archive")

    assert (done.exit_code, done.output) == (0, f"Sent: {tmp_path}/2026-03-14.txt\n")
    assert (tmp_path / "2026-03-14.txt").read_text().startswith("GPU report")


def test_what_did_not_arrive_is_exit_status_1(run: Run, tmp_path: Path) -> None:
    """With why."""
    (tmp_path / "2026-03-14.txt").mkdir()
    done = run("--day", "2026-03-14", "--send", "archive")

    assert done.exit_code == 1
    assert "The report did not reach archive: IsADirectoryError" in done.output


@pytest.mark.component("pg_ctl")
def test_both_databases_tell_the_same(tmp_path: Path) -> None:
    """The document of a day with a stop that somebody ended is the same from SQLite and from PostgreSQL."""
    rows = []
    for settings in (LedgerSettings(path=str(tmp_path / "ledger.db")), LedgerSettings(url=postgresql().database())):
        place = Place(settings)
        story = a_fortnight(place.open(), until=at(BEGIN, 2))
        story.stop("train-1", at(BEGIN, 3))
        for hour in (3, 4, 5):
            story.round(at(BEGIN, hour))
        story.start("train-1", at(BEGIN, 5, 15))
        story.done(Verb.NOTICE, "note-1", at(BEGIN, 6))
        for hour in (6, 7):
            story.round(at(BEGIN, hour))
        story.ledger.pause(None, "ann@host", "a test", at(BEGIN, 7))
        ActionHistory(story.ledger).keep_delivered("mail", "2026-03-13")
        rows.append(report_document(a_report(story.ledger, BEGIN, now=at(BEGIN, 8))))
        assert ActionHistory(story.ledger).last_delivered("mail") == "2026-03-13"
        place.close()

    assert rows[0] == rows[1]
    assert rows[0].saved.machine_hours == 2.25
    assert str(rows[0].saved.usd) == "73.74"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("at: '7:00'", "report.at '7:00' is not a time of day"),
        ("receivers: {x: {}}", "report.receivers.x has no transport"),
        ("receivers: {x: {file: {path: a.txt}, slack: {url_file: s}}}", "report.receivers.x names slack and file"),
        (
            "receivers: {x: {file: {path: a.pdf}}}",
            "report.receivers.x.file.path 'a.pdf' does not end with a format of reports",
        ),
        ("receivers: {x: {file: {path: /srv/%d.md}}}", "expected: a file that ends with .html, .json or .txt"),
        ("receivers: {x: {mail: {host: m}}}", "report.receivers.x.mail.to is empty"),
        ("receivers: {x: {mail: {host: m, to: [ann]}}}", "report.receivers.x.mail.to: 'ann' is not a mail address"),
        (
            "receivers: {x: {mail: {host: m, to: [a@b.c], username: u}}}",
            "report.receivers.x.mail.username is set, and password_file is not",
        ),
        (
            "receivers: {x: {mail: {host: m, to: [a@b.c], username: u, password_file: p, security: none}}}",
            "others could read the password of 'u'",
        ),
        ("receivers: {x: {webhook: {url: 'ftp://x'}}}", "report.receivers.x.webhook.url 'ftp://x' is not a valid URL"),
        (
            "receivers: {x: {webhook: {url: 'http://x', bearer_file: t}}}",
            "url is not https: others could read the token",
        ),
    ],
)
def test_settings_that_send_nothing_or_too_much_are_refused(tmp_path: Path, text: str, words: str) -> None:
    """Each mistake names its key and what would be right."""
    assert words in mistakes(tmp_path / "gpuwatch.yaml", f"report: {{{text}}}\n")


def test_a_whole_configuration_is_read(tmp_path: Path) -> None:
    """All four transports, each by a name of its own."""
    settings = read(
        tmp_path / "gpuwatch.yaml",
        """
report:
  at: "06:30"
  receivers:
    finance: {mail: {host: smtp.example.com, sender: gpu@example.com, to: [cfo@example.com]}}
    chat: {slack: {url_file: /etc/gpuwatch/slack}}
    archive: {file: {path: /srv/reports/%Y/%m-%d.html}}
    lake: {webhook: {url: "https://lake.example.com/in", bearer_file: /etc/gpuwatch/token}}
""",
    ).report

    assert {name: each.chosen for name, each in settings.receivers.items()} == {
        "finance": ("mail",),
        "chat": ("slack",),
        "archive": ("file",),
        "lake": ("webhook",),
    }
    assert settings.at == "06:30"

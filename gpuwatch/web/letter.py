"""The page behind a keep link, as HTML: no script, the fleet page's style, nothing from elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What it says. `choices` are seconds with their words; `done` is what was done just now."""

    title: str
    text: str = ""
    done: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[tuple[int, str], ...] = ()
    small: str = ""


def rendered(letter: Letter) -> bytes:
    """The page; its addresses are relative, so that it works behind whatever path leads here."""
    title = escape(letter.title)
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in letter.facts.items() if value)
    body = "\n".join(
        part
        for part in (
            f'<p class="done" role="status">{escape(letter.done)}</p>' if letter.done else "",
            f"<h2>{title}</h2>",
            f"<p>{escape(letter.text)}</p>" if letter.text else "",
            f'<dl class="facts">{facts}</dl>' if facts else "",
            _form(letter) if letter.choices else "",
            f'<p class="faint">{escape(letter.small)}</p>' if letter.small else "",
        )
        if part
    )
    return _PAGE.format(title=title, body=body).encode()


def _form(letter: Letter) -> str:
    """One button for each choice; a press of Enter in the text is the first."""
    buttons = "".join(
        f'<button type="submit" name="seconds" value="{seconds}">{escape(words)}</button>'
        for seconds, words in letter.choices
    )
    return (
        '<form method="post" class="keep">'
        '<label for="reason">Your reason (if you like; it goes on record)</label>'
        '<input id="reason" name="reason" maxlength="500" autocomplete="off">'
        f"<fieldset><legend>Keep it, from now on, for</legend>{buttons}</fieldset></form>"
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{title} · gpuwatch</title>
<link rel="icon" href="icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="page.css">
</head>
<body>
<header><h1><img src="icon.svg" alt="" width="24" height="24">gpuwatch</h1></header>
<main class="letter"><section class="card">
{body}
</section></main>
</body>
</html>
"""

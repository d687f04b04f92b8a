"""The page in its reader's language, which the browser names: its own words, and sentences of the API's answers.

1. A program that names no language gets English.
2. Of an answer only fields with gpuwatch's own sentences are translated. Names, what people wrote, and words that
   scripts compare stay as they are.
3. The page's words have a catalogue of their own, `LANGUAGE.po` in this folder: the page knows which one it says, and
   need not match a sentence. `{0}` is what stands in its first `{}`.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec

from gpuwatch.model.activity import MEANINGS
from gpuwatch.runtime.translation import catalogue, entries_of, first_known

# Fields with sentences, by their name, or with the name of what they are in.
_SENTENCES = {
    "why", "doubt", "still_billed", "last_reset", "owners", "change", "sentence", "remedy", "blind",
    "pool_reasons", "note", "notes", "source", "detail", "trouble", "clamps", "elsewhere", "price_source",
    "act", "regrets", "risk", "why_not", "error", "last_busy.amount", "last_busy.who", "silent.reason", "pools.rule",
    "budgets.scope", "budgets.blocked", "groups.name", "workloads.how",
}  # fmt: skip
_SHOWN = re.compile(
    r'(?P<before>>\s*|(?:aria-label|aria-roledescription|placeholder|title)=")(?P<text>[^<>"]+?)(?=\s*[<"])'
)


def language_of(accepted: str) -> str | None:
    """The language that an Accept-Language prefers, of those that there are; None: English."""
    wanted = []
    for each in accepted.split(","):
        name, _, quality = each.partition(";")
        weight = re.fullmatch(r"\s*q=([01](?:\.\d{0,3})?)\s*", quality) if quality else None
        wanted.append((-1.0 if weight is None else -float(weight[1]), name.strip()))
    return first_known(name for weight, name in sorted(wanted, key=lambda each: each[0]) if weight)


@lru_cache
def page_words(language: str) -> Mapping[str, str]:
    """What the page says in a language, by its English."""
    said = catalogue(language)
    own = entries_of(files("gpuwatch.controller.web").joinpath(f"{language}.po").read_text(encoding="utf-8"))
    return {**said.words(), **{words: said.translate(words) for words in MEANINGS.values()}, **own}


def translate_asset(name: str, content: bytes, language: str | None) -> bytes:
    """A file of the page: words.js begins with the catalogue, page.html has its words."""
    words = {} if language is None else page_words(language)
    if name == "words.js":
        return f"const SAID = {json.dumps(words, ensure_ascii=False)};\n".encode() + content
    if language is None or not name.endswith(".html"):
        return content
    page = content.decode().replace('<html lang="en">', f'<html lang="{language.replace("_", "-")}">')
    return _SHOWN.sub(lambda found: found["before"] + words.get(found["text"], found["text"]), page).encode()


def encode_answer(answer: object, language: str | None) -> bytes:
    """An answer as JSON, with its sentences in the language."""
    if language is None:
        return msgspec.json.encode(answer)
    return msgspec.json.encode(_translate_json(msgspec.to_builtins(answer), catalogue(language).translate))


def _translate_json(value: Any, translate: Callable[[str], str], parent: str = "", name: str = "") -> Any:  # noqa: ANN401
    """JSON with its sentences translated: `name` is the field that it is, `parent` the one around that."""
    if isinstance(value, dict):
        return {key: _translate_json(each, translate, name, key) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_translate_json(each, translate, parent, name) for each in value]
    sentence = isinstance(value, str) and not _SENTENCES.isdisjoint({name, f"{parent}.{name}"})
    return translate(value) if sentence else value

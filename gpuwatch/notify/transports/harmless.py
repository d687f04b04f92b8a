"""Pure: texts in which no name from outside calls people or becomes a link. Mail and chats do that by themselves.

A reader's program makes a link of `www.evil.example/login` in a machine's name, and DingTalk calls everybody by `@all`.
So `evil[.]example` is written, as people write addresses that nobody should follow; in what is typed, a backslash
stands before the dot, which a shell takes away again. Our own links have `://` in them, and names have not.
"""

import re

_OURS = frozenset({"gpuwatch.io"})  # the prefix of annotations, which sentences explain
_DOTS = ".。．｡"  # noqa: RUF001  browsers take these for dots, too
_MENTION = re.compile(r"(?<![\w.+-])([@＠])(?=\w)")  # noqa: RUF001  chats take both
_DOMAIN = re.compile(
    rf"(?<![\w@{_DOTS}-])((?:\w[\w-]*[{_DOTS}])+([^\W\d_](?:[^\W_]|-)+))(?![\w-]|[{_DOTS}]\w)([/:?#]\S)?"
)
_DOT = re.compile(f"[{_DOTS}]")
# Ends of names that programs take for web addresses: all of two letters, and the usual ones that are longer.
_LONGER_ENDS = re.compile(
    "academy|agency|app|arpa|art|bank|bid|biz|blog|build|business|cards|care|cash|center|chat|church|city|"
    "clinic|cloud|club|coffee|com|company|computer|consulting|cricket|date|deals|design|dev|digital|"
    "directory|download|edu|email|energy|engineering|events|example|exchange|expert|express|finance|"
    "financial|fit|fund|games|global|gov|group|guide|guru|haus|health|help|host|hosting|house|icu|info|"
    "institute|int|international|invalid|jobs|land|law|legal|life|link|live|loan|lol|ltd|management|"
    "market|marketing|media|men|mil|mobi|moe|money|monster|mov|museum|name|net|network|news|ninja|one|"
    "onion|online|org|page|party|photos|pics|pizza|plus|press|pro|pub|quest|racing|review|reviews|rocks|"
    "rip|run|school|science|services|shop|show|site|social|software|solutions|space|store|stream|studio|"
    "support|surf|systems|team|tech|technology|test|tips|today|tools|top|trade|training|university|vip|"
    "web|website|wiki|win|work|works|world|wtf|xyz|yoga|zip|zone"
)


def harmless_text(text: str) -> str:
    """Plain text in which names are words alone; what is between backticks can be typed as before."""
    parts = _MENTION.sub(r"\1 ", text).split("`")
    return "`".join(_without_links(part, typed=bool(number % 2)) for number, part in enumerate(parts))


def harmless_html(page: str) -> str:
    """The same for a page in which all that is no tag was escaped; its tags stay, and so do their links."""
    parts = re.split(r"(<[^>]*>)", page)
    typed = False
    for number, part in enumerate(parts):
        if number % 2:
            typed = part == "<code>" or (typed and part != "</code>")
        else:
            parts[number] = _without_links(_MENTION.sub(r"\1 ", part).replace("://", ": //"), typed=typed)
    return "".join(parts)


def _without_links(text: str, *, typed: bool) -> str:
    """The text with another dot in what looks like a web address, outside of our own links."""

    def write_name(found: re.Match[str]) -> str:
        name, end, path = found[1], found[2].lower(), found[3]
        known = len(end) == 2 or end.isascii() is False or end.startswith("xn--") or _LONGER_ENDS.fullmatch(end)  # noqa: PLR2004
        if name in _OURS or not (known or path or name.lower().startswith("www")):
            return found[0]
        return _DOT.sub(r"\\." if typed else "[.]", name) + (path or "")

    return re.sub(r"\S+", lambda word: word[0] if "://" in word[0] else _DOMAIN.sub(write_name, word[0]), text)

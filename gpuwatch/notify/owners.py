"""PURE: where an owner is reached. The owner is a tag, which whoever may tag a machine writes: it is judged first."""

import re

from gpuwatch.notify.knobs import Listener, NotifyKnobs

_PLAIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){0,63}")
_ADDRESS = re.compile(r"([A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*)@([A-Za-z0-9.-]+)")
_LONGEST = 254  # RFC 5321


def mail_of(owner: str | None, knobs: NotifyKnobs) -> str | None:
    """The owner's mail address; None: nobody may say what it is."""
    if owner is None:
        return None
    listed = knobs.owners.get(owner)
    if listed is not None and listed.mail is not None:
        return listed.mail
    address = _ADDRESS.fullmatch(owner)
    if address is not None:
        allowed = {domain.lower() for domain in knobs.mail_domains}
        return owner if address[2].lower() in allowed and len(owner) <= _LONGEST else None
    if knobs.owner_mail is not None and _PLAIN.fullmatch(owner):
        return knobs.owner_mail.replace("{owner}", owner)
    return None


def slack_of(owner: str | None, knobs: NotifyKnobs) -> str | None:
    """The owner's member id in Slack."""
    listed = None if owner is None else knobs.owners.get(owner)
    return None if listed is None else listed.slack


def addresses(listener: Listener, owner: str | None, knobs: NotifyKnobs) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of a mail: who it goes to, and who has a copy."""
    address = mail_of(owner, knobs) if listener.owners else None
    return (listener.mail.to, ()) if address is None else ((address,), listener.mail.to)

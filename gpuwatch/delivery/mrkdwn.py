"""Pure: Slack's markup, docs.slack.dev/messaging/formatting-message-text."""

from typing import Any


def as_said(words: str) -> str:
    """Words as they are: names come from others, and `<!channel>` in one calls nobody."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def marked(words: str) -> dict[str, Any]:
    """A text object; verbatim, or Slack would make calls and links of plain words such as @channel by itself."""
    return {"type": "mrkdwn", "text": words, "verbatim": True}

"""The report on a day, or on any days: gathered from the ledger, told as text, Markdown, JSON and HTML, delivered."""

"""The report on fleet and money: gathered once, written as text, HTML or JSON."""

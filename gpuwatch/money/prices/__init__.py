"""What an hour of a machine costs: the built-in table, the user's own prices, and what clouds answer when asked.

`catalogue` reads the table (data/types.tsv is edited by hand, `make prices` renews data/prices.tsv), `overrides_file`
the file of `prices.file`, `fetch` keeps what the providers answer, and `price_book` chooses among them.
"""

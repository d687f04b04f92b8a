"""`make prices`: the built-in table of prices renewed from the catalogues that clouds publish without a login."""

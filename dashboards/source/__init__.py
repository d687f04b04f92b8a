"""The source of dashboards/*.json; `python -m dashboards.source` writes them."""

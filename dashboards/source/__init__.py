"""What dashboards/*.json are made from: `python -m dashboards.source` writes them anew."""

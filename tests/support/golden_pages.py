"""Pages as tests/golden has them."""

import re


def without_versions(page: str) -> str:
    """The page without what differs from one build and one Python to the next; Prometheus can read it."""
    return re.sub(r"(_build_info)\{.*\}", r'\1{version="…"}', page)

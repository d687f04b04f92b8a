"""Files that come with gpuwatch next to its code: alerts, dashboards, units, policies of clouds."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def shipped(folder: str) -> Traversable:
    """A folder of the repository: as it lies in a wheel or a shiv file, else in the checkout around the package."""
    packed = files("gpuwatch") / "shipped" / folder
    return packed if packed.is_dir() else Path(__file__).parents[2] / folder

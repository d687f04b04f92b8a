"""Parts that are not installed: which extra brings them, and the command that installs it."""

import re

OURS = "gpuwatch"
_DEFAULT_CLOUD = "aws"


def install_hint(error: ImportError) -> str:
    """What is missing, and the command that installs the extra that brings it."""
    if "pip install" in str(error):
        return str(error)
    from importlib import metadata  # noqa: PLC0415  a fifth of the start-up, for an error alone

    module = (error.name or "").partition(".")[0]
    try:
        wanted = metadata.requires(OURS) or ()
    except metadata.PackageNotFoundError:
        wanted = ()
    matches = (re.match(rf"{re.escape(module)}\b.*extra == ['\"](\w+)", each, re.IGNORECASE) for each in wanted)
    brought = [found[1] for found in matches if found is not None]
    # What every cloud's extra brings is missing with all of them: then that of the cloud that is the default.
    extra = _DEFAULT_CLOUD if _DEFAULT_CLOUD in brought else next(iter(brought), "controller")
    return f"{error}: pip install '{OURS}[{extra}]'"


def is_missing_part(error: ImportError) -> bool:
    """Whether an extra brings what could not be imported; a module of our own that is missing is a bug."""
    return "pip install" in str(error) or (error.name or OURS).partition(".")[0] != OURS

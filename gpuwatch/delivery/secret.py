"""Secrets are in files of their own, or where gpuwatch.secrets finds them."""

from gpuwatch.delivery.errors import DeliveryError
from gpuwatch.secrets import read_secret


def secret(path: str | None) -> str:
    """What a file of its own holds, read anew each time, or what a reference leads to.

    Raises:
        DeliveryError: it cannot be read.

    """
    try:
        return read_secret(path or "").decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise DeliveryError(f"{path} cannot be read: {why}") from None

"""What did not arrive, in a sentence that holds no secret."""

import smtplib
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException

from gpuwatch.runtime.secrets import read_secret_text


class DeliveryError(Exception):
    """It did not arrive, as far as is known; the sentence says why and holds no secret."""


class RecipientsRefusedError(DeliveryError):
    """The mail server takes mail, and none for these recipients."""


@contextmanager
def in_words() -> Iterator[None]:
    """Turn what sending may raise into a `DeliveryError`."""
    try:
        yield
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        raise DeliveryError(f"the mail server answered {error.smtp_code} {said}") from None
    except smtplib.SMTPRecipientsRefused as error:
        raise RecipientsRefusedError(f"the mail server takes no mail for {', '.join(error.recipients)}") from None
    except urllib.error.HTTPError as error:
        error.close()
        raise DeliveryError(f"the server answered HTTP {error.code}") from None
    except urllib.error.URLError as error:
        raise DeliveryError(f"the server was not reached: {error.reason}") from None
    except HTTPException as error:  # its words may hold the URL
        raise DeliveryError(f"no HTTP came to pass ({type(error).__name__})") from None
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryError(f"{type(error).__name__}: {error}") from None
    except ValueError as error:  # http.client's repeats a header, and with it the token
        why = f"an address, a password or a token holds what cannot be sent ({type(error).__name__})"
        raise DeliveryError(why) from None


def secret(path: str | None) -> str:
    """What a file of its own holds, read anew each time, or what a reference leads to.

    Raises:
        DeliveryError: it cannot be read.

    """
    try:
        return read_secret_text(path or "")
    except OSError as error:
        raise DeliveryError(f"{path} cannot be read: {error.strerror}") from None

"""Certificates for tests: an authority of their own, and files as an administrator would lay them out."""

import os
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate and its key in files."""

    certificate: Path
    key: Path


class Authority:
    """A CA whose own certificate is at `ca`."""

    def __init__(self, folder: Path) -> None:
        """Make it, with its file in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca))

    def issue(self, name: str, *hosts: str, until: datetime | None = None) -> Issued:
        """A certificate for these hosts in `name.pem`; one that is there is replaced as certbot does it: by rename."""
        made = self._authority.issue_cert(*(hosts or ("127.0.0.1", "localhost")), not_after=until)
        issued = Issued(certificate=self._folder / f"{name}.pem", key=self._folder / f"{name}.key")
        parts = {
            issued.key: made.private_key_pem.bytes(),
            issued.certificate: b"".join(blob.bytes() for blob in made.cert_chain_pems),
        }
        for path, content in parts.items():
            fresh = path.with_suffix(".new")
            fresh.write_bytes(content)
            os.replace(fresh, path)  # noqa: PTH105  the rename is the point
        return issued

    def client(self, shown: Issued | None = None) -> ssl.SSLContext:
        """A client that believes this authority and may show a certificate."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        return context

"""Reads certificates through the package cryptography, which controllers have and agents do not."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.runtime.certificates import Validity
from gpuwatch.runtime.secrets import files_named
from gpuwatch.runtime.tls import TlsFiles, client_context

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


def by_x509(files: TlsFiles) -> dict[str, list[Validity]]:
    """Our own certificate, which its chain outlives, and the authorities, in the order of their file.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not what it should be.

    """
    client_context(files)  # raises where certificate and key are no pair: what cannot be used is not in force
    found = {}
    if files.certificate is not None:
        found[f"{files.section}.tls_certificate"] = validities_of(files.certificate)[:1]
    if files.ca is not None:
        found[f"{files.section}.{files.ca_key}"] = validities_of(files.ca)
    return found


def authorities_named(settings: object, section: str) -> list[TlsFiles]:
    """The authorities that the settings of a section believe besides the system's."""
    named = files_named(settings, (section,), ("tls_ca",))
    return [TlsFiles(section=".".join(path[:-1]), ca=Path(file)) for path, file in named]


def validities_of(path: Path) -> list[Validity]:
    """Of each certificate in a file, at least one; raises as `validities_in`, and OSError."""
    return validities_in(path.read_bytes())


def validities_in(text: bytes) -> list[Validity]:
    """Of each certificate in a text, at least one.

    Raises:
        ValueError: it holds no certificate in PEM, or this host lacks the package.

    """
    try:
        from cryptography import x509  # noqa: PLC0415  only where there is a certificate
    except ImportError as error:
        from gpuwatch.runtime.installed import install_command  # noqa: PLC0415  for an error alone

        why = f"certificates cannot be read without the package cryptography: {install_command('controller')}"
        raise ValueError(why) from error
    try:
        found = x509.load_pem_x509_certificates(text)
    except ValueError as error:
        raise ValueError("it holds no certificate in PEM") from error
    return [
        Validity(begin=each.not_valid_before_utc, end=each.not_valid_after_utc, names=_names(each)) for each in found
    ]


def _names(certificate: "Certificate") -> tuple[str, ...]:
    """The hosts that it is for; what cannot be read names none."""
    from cryptography import x509  # noqa: PLC0415  only where there is a certificate

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return (*found.get_values_for_type(x509.DNSName), *addresses)

"""The certificate authority of one controller: its key, the certificates that it makes, and those that it takes back.

1. It certifies names below `gpuwatch` alone: its own certificate says so (name constraints), so a client that trusts it
   by mistake has lost nothing.
2. A certificate names what the controller decides, nothing that a request asks for: of a request only the key counts.
3. No certificate outlives the authority, and none is valid for longer than the settings say.
"""

import ipaddress
import os
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpuwatch.controller.join import settings as names
from gpuwatch.controller.join.settings import JoinSettings
from gpuwatch.runtime.joined import ANY_AGENT, CONTROLLER, DOMAINS, PROMETHEUS, server_name_of

_YEARS = timedelta(days=3650)
_SKEW = timedelta(hours=1)  # so far a host's clock may be behind
_LONGEST_CN = 64
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate in PEM, and what the register keeps."""

    pem: str
    serial: int
    end: datetime


class Authority:
    """The authority in a folder that is there; `make_authority` makes one."""

    def __init__(self, join: JoinSettings) -> None:
        """Read its certificate and its key.

        Raises:
            OSError: they cannot be read; FileNotFoundError: there is no authority yet.
            ValueError: they are no certificate and key.

        """
        self._join = join
        self._certificate = x509.load_pem_x509_certificate(join.file(f"{names.AUTHORITY}.pem").read_bytes())
        key = _key_in_file(join.file(f"{names.AUTHORITY}.key"))
        if key.public_key() != self._certificate.public_key():
            raise ValueError(f"controller.join.folder: {join.folder} holds a key that is not its authority's")
        self._key = key

    @property
    def pem(self) -> str:
        """The authority's certificate in PEM."""
        return self._certificate.public_bytes(_PEM).decode()

    @property
    def fingerprint(self) -> bytes:
        """The SHA-256 of its certificate, by which hosts know it."""
        return self._certificate.fingerprint(hashes.SHA256())

    @property
    def end(self) -> datetime:
        """Until when it is valid."""
        return self._certificate.not_valid_after_utc

    def for_node(self, key: ec.EllipticCurvePublicKey, node_id: str, now: datetime) -> Issued:
        """A certificate for the agent of a node: it serves with it, and renews it by it."""
        both = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        words = f"node:{node_id}".encode()[:_LONGEST_CN].decode(errors="ignore")  # for people; the names count
        return self._issue(key, words, (server_name_of(node_id), ANY_AGENT), both, now)

    def keep_own(self, now: datetime) -> None:
        """Make the certificates of the controller and of Prometheus, and new ones when half of their time is over.

        Raises:
            OSError: they cannot be written.
            ValueError: the authority is not valid at that time.

        """
        both = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        asks = (ExtendedKeyUsageOID.CLIENT_AUTH,)
        for file, name, usages in ((names.CONTROLLER, CONTROLLER, both), (names.PROMETHEUS, PROMETHEUS, asks)):
            path = self._join.file(f"{file}.key")
            if not path.exists():
                write(path, _private(ec.generate_private_key(ec.SECP256R1())))
            # The key stays: so one file is replaced, and nobody reads half of a pair.
            key = _key_in_file(path)
            if self._is_fresh(self._join.file(f"{file}.pem"), key.public_key(), now):
                continue
            made = self._issue(key.public_key(), f"gpuwatch-{file}", (name,), usages, now)
            write(self._join.file(f"{file}.pem"), made.pem.encode())

    def revoke(self, serials: Collection[int]) -> None:
        """Write what the controller trusts, unless it is there: the authority, less these certificates.

        The list has the authority's own time: a later one would hide all agents from a clock that is set back.

        Raises:
            OSError: it cannot be written.

        """
        path, begin = self._join.file(names.TRUST), self._certificate.not_valid_before_utc
        if self._trusts_all_but(set(serials), path):
            return
        made = x509.CertificateRevocationListBuilder().issuer_name(self._certificate.subject)
        made = made.last_update(begin).next_update(self.end)
        for serial in serials:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(begin).build()
            made = made.add_revoked_certificate(entry)
        signed = made.sign(self._key, hashes.SHA256())
        write(path, self.pem.encode() + signed.public_bytes(_PEM))

    def _trusts_all_but(self, serials: set[int], path: Path) -> bool:
        """Whether the file says so already."""
        try:
            certificate, listed = path.read_text(encoding="ascii").split("-----BEGIN X509 CRL", 1)
            there = x509.load_pem_x509_crl(f"-----BEGIN X509 CRL{listed}".encode())
        except (OSError, ValueError):
            return False
        ours = certificate == self.pem and there.is_signature_valid(self._key.public_key())
        return ours and {each.serial_number for each in there} == serials

    def _issue(
        self,
        key: ec.EllipticCurvePublicKey,
        common_name: str,
        dns: Iterable[str],
        usages: Iterable[x509.ObjectIdentifier],
        now: datetime,
    ) -> Issued:
        begin = self._certificate.not_valid_before_utc
        if not begin <= now < self.end:
            raise ValueError(
                f"the authority in {self._join.folder} is of {begin:%Y-%m-%d} to {self.end:%Y-%m-%d}, and today "
                f"is {now:%Y-%m-%d}: set the clock; after its end, move the folder away, and let all hosts join again"
            )
        end = min(now + timedelta(seconds=self._join.lifetime), self.end)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(now - _SKEW, begin))
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in dns]), critical=False)
            .add_extension(_issuer_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Issued(pem=made.public_bytes(_PEM).decode(), serial=made.serial_number, end=made.not_valid_after_utc)

    def _is_fresh(self, path: Path, key: ec.EllipticCurvePublicKey, now: datetime) -> bool:
        """Whether that key's certificate is there, of this authority, and has more than half of its time left."""
        try:
            there = x509.load_pem_x509_certificate(path.read_bytes())
            there.verify_directly_issued_by(self._certificate)
        except (OSError, ValueError, TypeError, InvalidSignature):
            return False
        whole = there.not_valid_after_utc - there.not_valid_before_utc
        return there.public_key() == key and there.not_valid_before_utc <= now < there.not_valid_after_utc - whole / 2


def make_authority(join: JoinSettings, fleet: str, now: datetime) -> Authority:
    """The authority of the folder; a new one, where the folder has no authority.

    Raises:
        OSError: it cannot be read or written.
        ValueError: what is there is no authority.

    """
    if not join.file(f"{names.AUTHORITY}.pem").exists():
        Path(join.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        # The number tells two authorities of one name apart, where clients look one up by its name.
        words = f"gpuwatch {fleet}"[: _LONGEST_CN - 9] + f" {secrets.token_hex(4)}"
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words)])
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + _YEARS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(_constraints(), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write(join.file(f"{names.AUTHORITY}.key"), _private(key))
        write(join.file(f"{names.AUTHORITY}.pem"), made.public_bytes(_PEM))
    return Authority(join)


def key_in(request: str) -> ec.EllipticCurvePublicKey:
    """The key of a request for a certificate (PKCS #10); its sender has proven to have the private half.

    Raises:
        ValueError: it is no request, or of another kind of key.

    """
    try:
        read = x509.load_pem_x509_csr(request.encode())
        key = read.public_key()
        ours = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
        proven = ours and read.is_signature_valid  # of other keys a signature may take long
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("the request for a certificate cannot be read") from error
    if not proven or not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("the request for a certificate must be signed with its own key, of the curve P-256")
    return key


def key_of(certificate: bytes) -> ec.EllipticCurvePublicKey:
    """The key of a certificate (DER) that a handshake has verified; of ours, so of the one kind that there is."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("the certificate is of another kind than this authority makes")  # noqa: TRY004  data
    return key


def digest_of(key: ec.EllipticCurvePublicKey) -> str:
    """The SHA-256 of a public key."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(serialization.Encoding.DER, form))
    return digest.finalize().hex()


def write(path: Path, content: bytes) -> None:
    """Replace a file whole, for its folder's owner alone: also where root writes for the controller's user."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            give_to_owner(file.fileno(), path.parent)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # else a power cut may bring the old file back: a used token, a revoked host
        finally:
            os.close(folder)
    finally:
        fresh.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what `write` has begun and a kill has ended; nobody else may write meanwhile."""
    for left in folder.glob(".*.????????"):
        left.unlink(missing_ok=True)


def give_to_owner(descriptor: int, folder: Path) -> None:
    """Give a file that root has just made to the owner of its folder; never one that was there, perhaps as a link."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _constraints() -> x509.NameConstraints:
    """Our own names; none of the other kinds by which clients know servers and people."""
    ours: list[x509.GeneralName] = [x509.DNSName(each) for each in DOMAINS]
    none = [x509.IPAddress(ipaddress.ip_network(each)) for each in ("0.0.0.0/0", "::/0")]
    return x509.NameConstraints([*ours, x509.RFC822Name("gpuwatch"), x509.UniformResourceIdentifier("gpuwatch")], none)


def _key_in_file(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} holds another kind of key than gpuwatch makes")  # noqa: TRY004  data
    return key


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _issuer_key(key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)

"""The certificate authority of one controller: its key, the certificates that it makes, and those that it takes back.

1. It certifies names below `gpuwatch` alone: its own certificate says so (name constraints), so a client that trusts it
   by mistake has lost nothing.
2. A certificate names what the controller decides, nothing that a request asks for: of a request only the key counts.
3. No certificate outlives the authority, and none is valid for longer than the settings say.
4. A successor is made 400 days before an authority ends. For 150 days hosts learn of it at their renewals; then it
   signs, and both are believed for 100 days more (ADR 70). Which one signs follows from the time alone: a clock that
   was wrong for a minute has changed nothing.
"""

import ipaddress
import os
import re
import secrets
from collections.abc import Collection, Iterable, Sequence
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
# A certificate holds for 90 days at most and is renewed after 60. So hosts know a successor before it signs, no valid
# certificate of an authority is left when it is believed no more, and hosts forget it before an alert warns of its end.
_SUCCESSOR = timedelta(days=400)  # before the end
_SIGNS, _ALONE = timedelta(days=150), timedelta(days=250)  # after its begin
_LONGEST_CN = 64
_PEM = serialization.Encoding.PEM
_CRL = re.compile(r"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_KEYS = re.compile(rb"-----BEGIN PRIVATE KEY-----.*?-----END PRIVATE KEY-----", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate in PEM, and what the register keeps."""

    pem: str
    serial: int
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _One:
    """One authority: certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def begin(self) -> datetime:
        return self.certificate.not_valid_before_utc

    @property
    def end(self) -> datetime:
        return self.certificate.not_valid_after_utc

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(_PEM).decode()


class Authority:
    """The authority in a folder as it is at one time; `make_authority` makes one, and its successor."""

    def __init__(self, join: JoinSettings, now: datetime) -> None:
        """Read certificates and keys.

        Raises:
            OSError: they cannot be read; FileNotFoundError: there is no authority yet.
            ValueError: they are no certificate and key.

        """
        self._join = join
        self._all = _read_all(join)
        ready = [each for each in self._all if each.begin + _SIGNS <= now] or self._all[:1]
        there = [each for each in self._all if each.begin <= now < each.end]
        self._one = ready[-1] if ready[-1] in there or not there else there[-1]
        alone = max((each.begin for each in there if each.begin + _ALONE <= now), default=self._all[0].begin)
        self._believed = [each for each in self._all if each is self._one or (each in there and each.begin >= alone)]
        later = [each.begin + _SIGNS for each in there if each.begin > self._one.begin]
        self.changes_at = min([self._one.end, *later])  # a token that names this authority is of no use from then on

    @property
    def pem(self) -> str:
        """The certificate of the one that signs, in PEM."""
        return self._one.pem

    @property
    def believed_pem(self) -> str:
        """The certificates of all that hosts believe, in PEM."""
        return "".join(each.pem for each in self._believed)

    @property
    def fingerprint(self) -> bytes:
        """The SHA-256 of its certificate, by which hosts know it."""
        return self._one.certificate.fingerprint(hashes.SHA256())

    @property
    def end(self) -> datetime:
        """Until when it is valid."""
        return self._one.end

    def keep_successor(self, fleet: str, now: datetime) -> "Authority":
        """With a successor, where it is time for one; none is ever removed, for the clock may be wrong.

        Raises:
            OSError: it cannot be written.

        """
        known = any(self._one.begin < each.begin <= now for each in self._all)
        if known or not self.end - _SUCCESSOR <= now < self.end:
            return self
        _write_all(self._join, [*self._all, _make_one(fleet, now)])
        return Authority(self._join, now)

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
        """Write what the controller trusts, unless it is there: all that are believed, less these certificates.

        A list has its authority's own time: a later one would hide all agents from a clock that is set back.

        Raises:
            OSError: it cannot be written.

        """
        path = self._join.file(names.TRUST)
        if not self._trusts_all_but(set(serials), path):
            lists = "".join(_revocations(each, serials) for each in self._believed)
            write(path, (self.believed_pem + lists).encode())

    def _trusts_all_but(self, serials: set[int], path: Path) -> bool:
        """Whether the file says so already."""
        try:
            text = path.read_text(encoding="ascii")
            lists = [x509.load_pem_x509_crl(each.encode()) for each in _CRL.findall(text)]
        except (OSError, ValueError):
            return False
        return (
            text.startswith(self.believed_pem + "-----BEGIN X509 CRL")
            and len(lists) == len(self._believed)
            and all({each.serial_number for each in one} == serials for one in lists)
            and all(one.is_signature_valid(of.key.public_key()) for one, of in zip(lists, self._believed, strict=True))
        )

    def _issue(
        self,
        key: ec.EllipticCurvePublicKey,
        common_name: str,
        dns: Iterable[str],
        usages: Iterable[x509.ObjectIdentifier],
        now: datetime,
    ) -> Issued:
        begin = self._one.begin
        if not begin <= now < self.end:
            raise ValueError(
                f"the authority in {self._join.folder} is of {begin:%Y-%m-%d} to {self.end:%Y-%m-%d}, and today "
                f"is {now:%Y-%m-%d}: set the clock; after its end, move the folder away, and let all hosts join again"
            )
        end = min(now + timedelta(seconds=self._join.lifetime), self.end)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(self._one.certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(now - _SKEW, begin))
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in dns]), critical=False)
            .add_extension(_issuer_key(self._one.key.public_key()), critical=False)
            .sign(self._one.key, hashes.SHA256())
        )
        return Issued(pem=made.public_bytes(_PEM).decode(), serial=made.serial_number, end=made.not_valid_after_utc)

    def _is_fresh(self, path: Path, key: ec.EllipticCurvePublicKey, now: datetime) -> bool:
        """Whether that key's certificate is there, of this authority, and has more than half of its time left."""
        try:
            there = x509.load_pem_x509_certificate(path.read_bytes())
            there.verify_directly_issued_by(self._one.certificate)
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
        _write_all(join, [_make_one(fleet, now)])
    return Authority(join, now)


def _read_all(join: JoinSettings) -> list[_One]:
    """All authorities of the folder, the oldest first; a key that has no certificate is of a write that was ended."""
    certificates = x509.load_pem_x509_certificates(join.file(f"{names.AUTHORITY}.pem").read_bytes())
    path = join.file(f"{names.AUTHORITY}.key")
    text = path.read_bytes()
    keys = {
        digest_of(key.public_key()): key for key in (_private_in(each, path) for each in _KEYS.findall(text) or [text])
    }
    found = []
    for each in sorted(certificates, key=lambda one: one.not_valid_before_utc):
        public = each.public_key()
        key = keys.get(digest_of(public)) if isinstance(public, ec.EllipticCurvePublicKey) else None
        if key is None:
            raise ValueError(f"controller.join.folder: {join.folder} holds a key that is not its authority's")
        found.append(_One(certificate=each, key=key))
    return found


def _write_all(join: JoinSettings, several: Sequence[_One]) -> None:
    """Write the keys first: one without its certificate harms nobody."""
    write(join.file(f"{names.AUTHORITY}.key"), b"".join(_private(each.key) for each in several))
    write(join.file(f"{names.AUTHORITY}.pem"), "".join(each.pem for each in several).encode())


def _make_one(fleet: str, now: datetime) -> _One:
    """A new authority of this fleet, with a key of its own, for ten years."""
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
    return _One(certificate=made, key=key)


def _revocations(one: _One, serials: Iterable[int]) -> str:
    """The list of what an authority has taken back."""
    made = x509.CertificateRevocationListBuilder().issuer_name(one.certificate.subject)
    made = made.last_update(one.begin).next_update(one.end)
    for serial in serials:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(one.begin).build()
        made = made.add_revoked_certificate(entry)
    return made.sign(one.key, hashes.SHA256()).public_bytes(_PEM).decode()


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
    return _private_in(path.read_bytes(), path)


def _private_in(text: bytes, path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(text, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} holds another kind of key than gpuwatch makes")  # noqa: TRY004  data
    return key


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _issuer_key(key: ec.EllipticCurvePublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)

"""Security headers of every response: browsers load, run, frame and send nothing that is not from this server."""

_SELF = (
    "default-src 'none'; {}style-src 'self'; img-src 'self'; {}base-uri 'none'; form-action {}; frame-ancestors 'none'"
)
_OTHERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
# The fleet's page is a script that asks; it has no form that a browser sends by itself.
SAFE = (("Content-Security-Policy", _SELF.format("script-src 'self'; ", "connect-src 'self'; ", "'none'")), *_OTHERS)
# The page behind a snooze link is a form and has no script.
FORM = (("Content-Security-Policy", _SELF.format("", "", "'self'")), *_OTHERS)

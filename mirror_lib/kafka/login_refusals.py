"""Why a broker and this client will never talk, in plain words; what may go better the next time is no refusal."""

from __future__ import annotations

import ssl
from typing import Optional

from kafka.errors import (
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)

from mirror_lib.kafka.kerberos import KerberosError
from mirror_lib.kafka.tokens import TokenRefused, TokenUnavailable

# The connection broke, which may be a broker that stops or starts.
BROKEN = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_TOKEN_HINT = "the broker's log says why; check the token's audience, issuer, scope and the claim with the user's name"


class LoginRefused(KafkaError):  # type: ignore[misc]  # kafka-python has no types
    """A broker and this client do not get to talk, and trying again will not help. The text says why."""

    retriable = False


def refusal(error: BaseException, by_token: bool = False) -> Optional[str]:
    """Why a broker and this client will never talk; `None` where the next attempt may go better."""
    if isinstance(error, (LoginRefused, TokenRefused)):
        return str(error.args[0])
    if isinstance(error, TokenUnavailable):
        return None
    inner = error.args[0] if error.args and isinstance(error.args[0], Exception) else error.__context__
    if isinstance(error, SaslAuthenticationFailedError):
        said = str(error.args[0]) if error.args else ""  # the error's name, and what the broker says
        said = said.partition(": ")[2] or said or "no reason given"
        if by_token:
            return f"the broker refused the token: {said}. Nothing was read or written; {_TOKEN_HINT}"
        return f"the broker refused the login: {said}"
    if isinstance(error, UnsupportedSaslMechanismError):
        return "the broker does not take this sasl.mechanism"
    if isinstance(error, IllegalSaslStateError):
        return "the broker's listener takes no login: set security.protocol to PLAINTEXT or SSL, or take another port"
    if isinstance(error, KerberosError):
        return f"Kerberos gave no ticket: {error}"
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not trusted: {inner.verify_message}"
    if not isinstance(inner, ssl.SSLError) or isinstance(inner, BROKEN):
        return None
    reason = str(getattr(inner, "reason", None) or "")
    if "ALERT" in reason:
        return f"the broker refused our certificate, or that there is none ({reason})"
    return f"no TLS connection: {reason or 'no reason given'}"

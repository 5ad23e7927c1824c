"""Prepares logins: TLS stores, SASL mechanisms, OAUTHBEARER and AWS_MSK_IAM tokens; explains permanent refusals.

Each process opens store files itself, as Java's client does, so no Spark task contains a private key. A process keeps
one token for each login and renews it before it expires. No message contains a token or a secret.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import ssl
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple, Union
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from kafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.sasl.oauth import AbstractTokenProvider

from mirror_lib.config.security import PEM, KerberosLogin, MskLogin, OauthLogin, Store, TlsSettings, pem_blocks
from mirror_lib.errors import ConfigError
from mirror_lib.kafka.java_keystore import Opened, open_java_stores
from mirror_lib.kafka.kerberos import KerberosError
from mirror_lib.kafka.kerberos import library as kerberos_library

log = logging.getLogger(__name__)

# As Java's `sasl.login.refresh.window.factor`: a token is replaced after this part of its lifetime.
REFRESH_AFTER = 0.8
# While the endpoint does not answer, a valid token stays in use for so long before the next request.
AGAIN_SECONDS = 10.0
LARGEST_ANSWER_BYTES = 1024 * 1024
# HTTP statuses that a retry may fix, in addition to 5xx.
_LATER = (408, 429)


class LoginRefused(KafkaError):  # type: ignore[misc]  # kafka-python has no types
    """A connection or login that fails permanently: a retry will not help. The text has the reason."""

    retriable = False


class TokenUnavailable(KafkaConnectionError):  # type: ignore[misc]  # kafka-python has no types
    """The token endpoint gave no usable response. A later request may succeed."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Token:
    """A token, and the times of its refresh and its expiry, in `time.monotonic()` seconds."""

    text: str = field(repr=False)
    refresh_at: float
    expires_at: float


class TokenSource(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """The token of one login, requested at first use and again after `REFRESH_AFTER` of its lifetime.

    Thread-safe. kafka-python calls it at each login and each re-authentication.
    """

    def __init__(
        self,
        request: Callable[[], Token],
        extensions: Tuple[Tuple[str, str], ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request, self._extensions, self._clock = request, extensions, clock
        self._lock = threading.Lock()
        self._token: Optional[Token] = None

    def token(self) -> str:
        """A valid token. Raises `LoginRefused`, and `TokenUnavailable` once the last token has expired."""
        with self._lock:
            now = self._clock()
            if self._token is None or now >= self._token.refresh_at:
                self._token = self._refreshed(now)
            return self._token.text

    def extensions(self) -> Dict[str, str]:
        return dict(self._extensions)

    def forget(self) -> None:
        """Drop the token, because the broker refused it; the next login requests another one."""
        with self._lock:
            self._token = None

    def _refreshed(self, now: float) -> Token:
        try:
            return self._request()
        except TokenUnavailable as error:
            if self._token is None or now >= self._token.expires_at:
                raise
            log.warning("%s; the token in use is valid for another %.0f s", error, self._token.expires_at - now)
            return replace(self._token, refresh_at=min(now + AGAIN_SECONDS, self._token.expires_at))


_sources: Dict[object, TokenSource] = {}


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would send the client secret to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _from_endpoint(login: OauthLogin, context: Optional[Callable[[], ssl.SSLContext]]) -> Token:
    answer = _posted(login, context)
    text = answer.get("access_token")
    if not isinstance(text, str) or not text:
        raise LoginRefused(_sentence(login, "answered without an access_token", "check the address"))
    seconds = _lifetime(answer.get("expires_in"), text)
    if seconds is None:
        raise LoginRefused(_sentence(login, "gave a token without an end of its life", "have it set expires_in"))
    return _token(text, seconds)


def _token(text: str, seconds: float) -> Token:
    now = time.monotonic()
    return Token(text, now + REFRESH_AFTER * seconds, now + seconds)


def _posted(login: OauthLogin, context: Optional[Callable[[], ssl.SSLContext]]) -> Mapping[str, Any]:
    handlers: Tuple[Any, ...] = (_NoRedirect,) if context is None else (_NoRedirect, HTTPSHandler(context=context()))
    try:
        with build_opener(*handlers).open(_request(login), timeout=login.timeout_seconds) as answer:
            found = json.loads(answer.read(LARGEST_ANSWER_BYTES))
    except HTTPError as error:
        raise _http_error(login, error) from None
    except ValueError:  # json's and its decoder's
        raise LoginRefused(_sentence(login, "answered something other than JSON", "check the address")) from None
    except (URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            said = f"has a certificate that is not trusted: {reason.verify_message}"
            todo = "set ssl.truststore.location and ssl.truststore.type in sasl.jaas.config"
            raise LoginRefused(_sentence(login, said, todo)) from None
        said = f"cannot be reached: {getattr(reason, 'strerror', None) or reason or type(reason).__name__}"
        raise TokenUnavailable(_sentence(login, said, "check the address and the network")) from None
    return found if isinstance(found, dict) else {}


def _request(login: OauthLogin) -> Request:
    form = {"grant_type": "client_credentials", **({"scope": login.scope} if login.scope else {})}
    pair = [login.client_id, login.client_secret]
    credentials = ":".join(map(quote_plus, pair) if login.encodes_header else pair)
    headers = {
        "Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}",
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return Request(login.endpoint, urlencode(form).encode(), headers, method="POST")


def _http_error(login: OauthLogin, error: HTTPError) -> KafkaError:
    """The error for an HTTP status, with the endpoint's own message (RFC 6749, 5.2) without the secret."""
    try:
        body = json.loads(error.read(LARGEST_ANSWER_BYTES))
        words = [str(body[key]) for key in ("error", "error_description") if body.get(key)]
    except (ValueError, AttributeError, OSError, HTTPException):
        words = []
    said = " ".join(": ".join(words).split()).replace(login.client_secret, "***")[:300]
    answered = f"HTTP {error.code}" + (f" ({said})" if said else "")
    if error.code in _LATER or error.code >= 500:
        return TokenUnavailable(_sentence(login, f"answered {answered}", "retry, or ask its operator"))
    todo = "check the client id, the client secret and the scope"
    return LoginRefused(_sentence(login, f"refused client {login.client_id}: {answered}", todo))


def _sentence(login: OauthLogin, what: str, todo: str) -> str:
    return f"the token endpoint {login.endpoint} {what}. Nothing was read or written with this login; {todo}"


def _lifetime(expires_in: object, token: str) -> Optional[float]:
    """Seconds until a token expires: the endpoint's `expires_in`, else a JWT's claim `exp`; `None` without both."""
    try:
        if expires_in is not None:
            return float(str(expires_in))
        claims = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]) - time.time()
    except (ValueError, LookupError, TypeError):
        return None


def _signer(login: MskLogin) -> Callable[[], Tuple[str, int]]:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as provider
    except ImportError:
        raise ConfigError(
            "AWS_MSK_IAM needs the Python package aws-msk-iam-sasl-signer-python on every machine; nothing was read or "
            "written",
            "pip install '.[msk-iam]'",
        ) from None
    region = login.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(
            "AWS_MSK_IAM: bootstrap.servers does not contain the region of the cluster; nothing was read or written",
            "set AWS_REGION on every machine",
        )
    if login.role:
        role = login.role
        session = {"sts_session_name": login.session} if login.session else {}
        return lambda: provider.generate_auth_token_from_role_arn(region, role, **session)
    if login.profile:
        return lambda: provider.generate_auth_token_from_profile(region, login.profile)
    return lambda: provider.generate_auth_token(region)


def _signed(sign: Callable[[], Tuple[str, int]]) -> Token:
    try:
        text, expires_ms = sign()
    # Without credentials the signer raises AttributeError or ValueError; botocore's errors have no common base class.
    except Exception as error:
        log.debug("AWS's signer failed", exc_info=True)
        without = isinstance(error, (AttributeError, ValueError))
        said = "it found no credentials" if without else str(error).split("\n")[0]
        raise LoginRefused(
            f"AWS's signer made no token for MSK: {said}. Nothing was read or written with this login; check the "
            "credentials of this machine's role, profile or environment"
        ) from None
    return _token(text, expires_ms / 1000 - time.time())


_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# Java trusts any certificate in its trust store, OpenSSL by default only self-signed ones. The flag has no name before
# Python 3.10.
_PARTIAL_CHAIN = 0x80000


def ready_options(options: Mapping[str, Any]) -> Dict[str, Any]:
    """The client options with `tls` replaced by an `ssl_context`, and a token login by the process's token source.

    Raises `ConfigError` if a store cannot be opened, or the library of a login is missing.
    """
    ready = dict(options)
    settings: Optional[TlsSettings] = ready.pop("tls", None)
    if settings is not None:
        ready["ssl_context"] = tls_context(settings)
    if isinstance(ready.get("sasl_kerberos_name"), KerberosLogin):
        kerberos_library()
    login = ready.get("sasl_oauth_token_provider")
    if isinstance(login, (OauthLogin, MskLogin)):
        ready["sasl_oauth_token_provider"] = _token_source(login)
    return ready


def _token_source(login: Union[OauthLogin, MskLogin]) -> TokenSource:
    if isinstance(login, MskLogin):
        sign = _signer(login)
        return _sources.setdefault(login, TokenSource(lambda: _signed(sign)))
    context = None if login.tls is None else partial(tls_context, login.tls)
    if context is not None:
        context()  # raises here instead of at a login if a store cannot be opened
    return _sources.setdefault(login, TokenSource(lambda: _from_endpoint(login, context), login.extensions))


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context for these settings, made again when a store file was renewed. Raises `ConfigError`."""
    paths = [Path(each.location) for each in (settings.trusted, settings.own) if each is not None and each.location]
    return _context(settings, tuple(path.stat().st_mtime for path in paths if path.exists()))


@lru_cache(maxsize=16)
def _context(settings: TlsSettings, ages: Tuple[float, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.check_hostname
    context.minimum_version = _VERSIONS[settings.protocols[0]]
    context.maximum_version = _VERSIONS[settings.protocols[-1]]
    context.verify_flags |= _PARTIAL_CHAIN
    stores = [(each, each is settings.own) for each in (settings.trusted, settings.own) if each is not None]
    in_java = [each for each in stores if each[0].kind != PEM]
    opened = dict(zip(in_java, open_java_stores(in_java)))  # by one JVM
    opened.update({each: _open_pem(*each) for each in stores if each[0].kind == PEM})
    if settings.trusted is None:
        context.load_default_certs()
    else:
        _trust(context, settings.trusted, opened[settings.trusted, False])
    if settings.own is not None:
        _prove(context, settings.own, opened[settings.own, True])
    return context


def _trust(context: ssl.SSLContext, store: Store, opened: Opened) -> None:
    try:
        context.load_verify_locations(cadata=opened.trusted)
    except ssl.SSLError as error:
        raise ConfigError(f"the trust store {_named(store)} cannot be used: {error.reason}") from None
    except ValueError:  # Python raises it for an empty text
        raise ConfigError(f"the trust store {_named(store)} holds no certificate (is its password right?)") from None


def _prove(context: ssl.SSLContext, store: Store, opened: Opened) -> None:
    if opened.key is None or not opened.chain:
        raise ConfigError(f"the key store {_named(store)} holds no private key with its certificate")
    # The key of a Java store is already decrypted. A password callback is needed in any case: OpenSSL would prompt.
    password = (store.key_password or "") if store.kind == PEM else ""
    try:
        with _path_to(opened.key + opened.chain) as path:
            context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "its password is wrong or missing"
        raise ConfigError(f"the key store {_named(store)} cannot be used: {reason}", "check ssl.key.password") from None


def _open_pem(store: Store, with_key: bool) -> Opened:
    certificates, key = store.certificates, store.key
    if store.location is not None:
        try:
            certificates = key = Path(store.location).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ConfigError(f"the PEM store {store.location} cannot be read: {error.strerror}") from None
    chain = pem_blocks(certificates or "", "CERTIFICATE")
    return Opened(chain, (pem_blocks(key or "", "PRIVATE KEY") or None) if with_key else None, chain)


def _named(store: Store) -> str:
    return store.location or "in the configuration file"


@contextmanager
def _path_to(text: str) -> Iterator[str]:
    """A path from which OpenSSL can read `text`, because it reads keys from files only.

    The file is in memory if the system supports it; else no other user can read it. It is deleted after the context."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("mirror")
        try:
            os.write(number, text.encode())
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        yield file.name


# The connection broke, perhaps because the broker stops or starts.
BROKEN = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_TOKEN_HINT = "the broker's log says why; check the token's audience, issuer, scope and the claim with the user's name"


def refusal(error: BaseException, by_token: bool = False) -> Optional[str]:
    """The reason of a permanent connection or login failure; `None` if a retry may succeed."""
    if isinstance(error, LoginRefused):
        return str(error.args[0])
    if isinstance(error, TokenUnavailable):
        return None
    inner = error.args[0] if error.args and isinstance(error.args[0], Exception) else error.__context__
    if isinstance(error, SaslAuthenticationFailedError):
        said = str(error.args[0]) if error.args else ""  # the error's name and the broker's message
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

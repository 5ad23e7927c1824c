"""Tokens for SASL/OAUTHBEARER: from a token endpoint by client credentials, or from AWS's signer for Amazon MSK.

A process keeps one token for each login and replaces it before it expires. No token and no secret is in any message.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import ssl
import threading
import time
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any, Callable, Dict, Mapping, Optional, Tuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from kafka.errors import KafkaConnectionError, KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from mirror_lib.config.tokens import MskLogin, OauthLogin
from mirror_lib.errors import ConfigError

log = logging.getLogger(__name__)

# As Java's `sasl.login.refresh.window.factor`: a token is replaced after this part of its life.
REFRESH_AFTER = 0.8
# While the endpoint does not answer, a token that is still valid is used for so long before the next request.
AGAIN_SECONDS = 10.0
LARGEST_ANSWER_BYTES = 1024 * 1024
# What a later request may get an answer to: 408, 429 and the server's own errors.
_LATER = (408, 429)


class TokenRefused(KafkaError):  # type: ignore[misc]  # kafka-python has no types
    """There is no token for this login, and another request would not help. The text says why and what to do."""

    retriable = False


class TokenUnavailable(KafkaConnectionError):  # type: ignore[misc]  # kafka-python has no types
    """The token endpoint gave no answer that counts. A later request may succeed."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Token:
    """A token, and until when it is used and valid, in `time.monotonic()` seconds."""

    text: str = field(repr=False)
    refresh_at: float
    expires_at: float


class TokenSource(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """The token of one login, requested when it is first needed and again after `REFRESH_AFTER` of its life.

    Thread-safe. kafka-python asks it at each login and each re-authentication.
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
        """A valid token. Raises `TokenRefused`, and `TokenUnavailable` once the last token has expired."""
        with self._lock:
            now = self._clock()
            if self._token is None or now >= self._token.refresh_at:
                self._token = self._refreshed(now)
            return self._token.text

    def extensions(self) -> Dict[str, str]:
        """The SASL extensions that go to the broker with the token."""
        return dict(self._extensions)

    def forget(self) -> None:
        """Request another token at the next login: the broker refused this one."""
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


def oauth_source(login: OauthLogin, context: Optional[Callable[[], ssl.SSLContext]]) -> TokenSource:
    """The process's token source for these client credentials; `context` makes the endpoint's TLS context."""
    return _sources.setdefault(login, TokenSource(lambda: _from_endpoint(login, context), login.extensions))


def msk_source(login: MskLogin) -> TokenSource:
    """The process's token source for this IAM login. Raises `ConfigError` without AWS's signer or the region."""
    sign = _signer(login)
    return _sources.setdefault(login, TokenSource(lambda: _signed(sign)))


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would send the client secret to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _from_endpoint(login: OauthLogin, context: Optional[Callable[[], ssl.SSLContext]]) -> Token:
    answer = _posted(login, context)
    text = answer.get("access_token")
    if not isinstance(text, str) or not text:
        raise TokenRefused(_sentence(login, "answered without an access_token", "check the address"))
    seconds = _lifetime(answer.get("expires_in"), text)
    if seconds is None:
        raise TokenRefused(_sentence(login, "gave a token without an end of its life", "have it set expires_in"))
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
        raise TokenRefused(_sentence(login, "answered something other than JSON", "check the address")) from None
    except (URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            said = f"has a certificate that is not trusted: {reason.verify_message}"
            todo = "set ssl.truststore.location and ssl.truststore.type in sasl.jaas.config"
            raise TokenRefused(_sentence(login, said, todo)) from None
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
    """The endpoint's refusal in its own words (RFC 6749, 5.2), which must not repeat the secret."""
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
    return TokenRefused(_sentence(login, f"refused client {login.client_id}: {answered}", todo))


def _sentence(login: OauthLogin, what: str, todo: str) -> str:
    return f"the token endpoint {login.endpoint} {what}. Nothing was read or written with this login; {todo}"


def _lifetime(expires_in: object, token: str) -> Optional[float]:
    """Seconds that a token is valid for: what the endpoint says, else the claim `exp` of a JWT; `None` without both."""
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
            "pip install 'spark-kafka-mirror[msk-iam]'",
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
    # Without credentials the signer fails on `None`; botocore's errors share no class with it.
    except Exception as error:
        log.debug("AWS's signer failed", exc_info=True)
        without = isinstance(error, (AttributeError, ValueError))
        said = "it found no credentials" if without else str(error).split("\n")[0]
        raise TokenRefused(
            f"AWS's signer made no token for MSK: {said}. Nothing was read or written with this login; check the "
            "credentials of this machine's role, profile or environment"
        ) from None
    return _token(text, expires_ms / 1000 - time.time())

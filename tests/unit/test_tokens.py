"""Tokens of a real endpoint: reused, replaced before they expire, kept while it is silent, and never shown."""

from __future__ import annotations

import base64
import logging
from dataclasses import replace
from pathlib import Path
from typing import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from kafka.net.sasl import get_sasl_mechanism

from mirror_lib.config.security import MskLogin, OauthLogin, Store, TlsSettings
from mirror_lib.kafka.security import (
    AGAIN_SECONDS,
    LoginRefused,
    Token,
    TokenSource,
    TokenUnavailable,
    ready_options,
    refusal,
)
from tests.lab.token_server import SECRET, Issuer, issuer


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Issuer]:
    with issuer(tmp_path) as made:
        yield made


def login(at: Issuer, **changes: object) -> OauthLogin:
    return replace(OauthLogin(at.token_url, "mirror", SECRET, "kafka.write"), **changes)  # type: ignore[arg-type]


def source(of: object) -> TokenSource:
    found = ready_options({"sasl_oauth_token_provider": of})["sasl_oauth_token_provider"]
    assert isinstance(found, TokenSource)
    return found


@pytest.mark.parametrize("says_life", [True, False])
def test_a_token_near_its_end_is_replaced(endpoint: Issuer, says_life: bool) -> None:
    endpoint.life_seconds, endpoint.says_life = 0.0, says_life
    tokens = source(login(endpoint))
    assert tokens.token() and tokens.token()
    assert len(endpoint.requests) == 2
    endpoint.life_seconds = 3600.0
    assert tokens.token() == tokens.token()
    assert len(endpoint.requests) == 3


def test_a_process_requests_one_token_for_a_login_until_a_broker_refuses_it(endpoint: Issuer) -> None:
    tokens = {source(login(endpoint)).token() for _ in range(3)}
    assert endpoint.requests == [("mirror", "kafka.write", *tokens)]
    source(login(endpoint)).forget()
    assert source(login(endpoint)).token() not in tokens
    assert len(endpoint.requests) == 2


def test_a_valid_token_outlives_an_endpoint_that_is_silent() -> None:
    now, answers = [0.0], [Token("one", 80.0, 100.0)]

    def request() -> Token:
        if answers:
            return answers.pop()
        asked.append(now[0])
        raise TokenUnavailable("no answer")

    asked: list[float] = []
    tokens = TokenSource(request, clock=lambda: now[0])
    for at in (0.0, 79.0, 80.0, 80.0 + AGAIN_SECONDS / 2, 80.0 + AGAIN_SECONDS):
        now[0] = at
        assert tokens.token() == "one"
    assert asked == [80.0, 80.0 + AGAIN_SECONDS]
    now[0] = 100.0
    with pytest.raises(TokenUnavailable):
        tokens.token()


def failed(tokens: TokenSource) -> str:
    with pytest.raises((LoginRefused, TokenUnavailable)) as caught:
        tokens.token()
    return str(caught.value)


def test_refused_secret_is_not_in_the_endpoints_words(endpoint: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = source(login(endpoint, client_secret="canary"))
    said = failed(tokens)
    assert "refused client mirror: HTTP 401 (invalid_client: the secret *** is wrong)" in said
    assert "canary" not in said + repr(tokens) + caplog.text


def test_what_may_pass_is_tried_again_and_the_rest_ends(endpoint: Issuer) -> None:
    tokens = source(login(endpoint))
    for status, error in ((503, TokenUnavailable), (429, TokenUnavailable), (403, LoginRefused)):
        endpoint.status = status
        with pytest.raises(error, match=f"HTTP {status}") as caught:
            tokens.token()
        assert (refusal(caught.value) is None) == (error is TokenUnavailable)
    endpoint.status = 200
    assert tokens.token()


def test_a_secret_does_not_follow_a_redirect(endpoint: Issuer) -> None:
    assert "HTTP 302" in failed(source(login(endpoint, endpoint=f"{endpoint.url}/elsewhere")))
    assert not endpoint.requests


def test_credentials_are_encoded_where_the_endpoint_wants_it(endpoint: Issuer) -> None:
    endpoint.clients, endpoint.encoded = {"mirror": "a+b%/ c"}, True
    assert source(login(endpoint, client_secret="a+b%/ c", encodes_header=True)).token()
    failed(source(login(endpoint, client_secret="a+b%/ c")))


@pytest.mark.parametrize("trusts", [True, False])
def test_endpoint_is_asked_only_where_its_certificate_is_in_the_login_lines_store(tmp_path: Path, trusts: bool) -> None:
    with issuer(tmp_path, tls=True) as endpoint:
        store = Store("PEM", str(endpoint.certificate)) if trusts else None
        tokens = source(login(endpoint, tls=TlsSettings(store, None, True)))
        assert bool(tokens.token()) if trusts else "certificate that is not trusted" in failed(tokens)
        assert len(endpoint.requests) == trusts


MSK = MskLogin("eu-central-1")


def test_awss_token_goes_to_the_broker_as_oauthbearer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mirror_lib")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    tokens = source(replace(MSK, profile=None, session="signed"))
    mechanism = get_sasl_mechanism("OAUTHBEARER")(sasl_oauth_token_provider=tokens)
    head, _, token = mechanism.auth_bytes().decode().partition("auth=Bearer ")
    assert head == "n,,\x01" and token.endswith("\x01\x01")
    text = token.rstrip("\x01")
    signed = parse_qs(urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()).query)
    assert signed["Action"] == ["kafka-cluster:Connect"]
    assert signed["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert "/eu-central-1/kafka-cluster/" in signed["X-Amz-Credential"][0]
    assert tokens.token() == text
    assert text not in caplog.text and SECRET not in caplog.text + repr(tokens)

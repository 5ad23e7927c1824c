"""An OpenID provider of the lab: client credentials for a signed JWT, and the key that brokers check it with; and a
broker whose `SASL_SSL` listener takes these tokens."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple
from urllib.parse import parse_qs, unquote_plus

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from jwt.algorithms import RSAAlgorithm

from tests.lab.brokers import JARS, KafkaBroker, free_ports, listeners, running
from tests.lab.jvm import kafka_archive, quick_options
from tests.lab.secured import SECURITY, Stores

SECRET = "canary-client-5e0c"
AUDIENCE = "kafka"


@dataclass
class Issuer:
    """`clients` are ids with their secrets. A token expires after `life_seconds`.

    `requests` has, for each token that was given, the client, its scope and the token; `refused` counts the others.
    `status` other than 200 answers everything so. `issuer` sets `url` and `keys_url`.
    """

    directory: Path
    clients: Dict[str, str] = field(default_factory=lambda: {"mirror": SECRET})
    audience: str = AUDIENCE
    life_seconds: float = 3600.0
    says_life: bool = True
    encoded: bool = False
    status: int = 200
    url: str = ""
    keys_url: str = ""
    requests: List[Tuple[str, str, str]] = field(default_factory=list)
    refused: int = 0
    key: RSAPrivateKey = field(default_factory=lambda: generate_private_key(65537, 2048))

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    @property
    def certificate(self) -> Path:
        """The certificate of its own that it shows, in PEM."""
        return self.directory / "issuer.pem"

    def keys(self) -> Dict[str, object]:
        public = RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": "lab", "use": "sig", "alg": "RS256"}]}

    def answer(self, authorization: str, form: str) -> Tuple[int, Dict[str, object]]:
        """As RFC 6749, 4.4."""
        if self.status != 200:
            return self.status, {"error": "temporarily_unavailable"}
        pair = base64.b64decode(authorization.partition("Basic ")[2]).decode()
        client, _, secret = (unquote_plus(pair) if self.encoded else pair).partition(":")
        fields = {name: values[0] for name, values in parse_qs(form).items()}
        if self.clients.get(client) != secret or fields.get("grant_type") != "client_credentials":
            self.refused += 1
            return 401, {"error": "invalid_client", "error_description": f"the secret {secret} is\nwrong"}
        now = time.time()
        claims = {"sub": client, "aud": self.audience, "iss": self.url, "iat": now - 1, "exp": now + self.life_seconds}
        token = jwt.encode(claims, self.key, "RS256", headers={"kid": "lab"})
        self.requests.append((client, fields.get("scope", ""), token))
        life = {"expires_in": self.life_seconds} if self.says_life else {}
        return 200, {"access_token": token, "token_type": "Bearer", **life}


@contextmanager
def issuer(directory: Path, tls: bool = False) -> Iterator[Issuer]:
    """A running one, gone on the way out. With `tls` it shows a certificate of its own, but its keys stay on `http:`: a
    broker that logs in nowhere itself can name no trust store for them."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Issuer(directory)
    with _served(made) as made.url:
        made.keys_url = f"{made.url}/keys"
        if not tls:
            yield made
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(_certified(made))
        with _served(made, context) as plain:
            made.url = plain.replace("http:", "https:")
            yield made


@contextmanager
def _served(made: Issuer, context: Optional[ssl.SSLContext] = None) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(made)) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _handler(made: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Two addresses, and one that redirects."""

        def do_GET(self) -> None:
            self._reply(200, made.keys())

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            elsewhere = self.path == "/elsewhere"
            self._reply(*((302, {}) if elsewhere else made.answer(self.headers["Authorization"], form)))

        def _reply(self, status: int, answer: Dict[str, object]) -> None:
            self.send_response(status)
            if status == 302:
                self.send_header("Location", made.token_url)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _certified(made: Issuer) -> Path:
    """Key and certificate in one file; the certificate alone is for who trusts it."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(made.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(made.key, hashes.SHA256())
    )  # fmt: skip
    shown = certificate.public_bytes(Encoding.PEM)
    made.certificate.write_bytes(shown)
    both = made.directory / "issuer-key.pem"
    both.write_bytes(made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + shown)
    return both


MODULE = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule"


class TokenBroker(KafkaBroker):
    """`bootstrap` is an inner listener for the lab, without a login. `token_port` takes tokens."""

    stores: Stores
    token_port: int
    issuer: Issuer

    def client(self, secret: str = SECRET, client_id: str = "mirror") -> Dict[str, str]:
        """Client properties as a Java client has them. The endpoint's certificate is not the broker's."""
        trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{self.issuer.certificate}"'
        return {
            "bootstrap.servers": f"127.0.0.1:{self.token_port}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{SECURITY}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.issuer.token_url,
            "sasl.jaas.config": f'{MODULE} required clientId="{client_id}" clientSecret="{secret}" '
                                f'scope="kafka.write" {trusted};',
            **self.stores.client("PEM"),
        }  # fmt: skip


@contextmanager
def token_broker(directory: Path, issuer: Issuer) -> Iterator[TokenBroker]:
    """One such, killed on the way out. It ends each session at the end of its token, and after an hour."""
    stores = Stores(directory / "stores")
    stores.make()
    inner, outer, controller = free_ports(3)
    both = ("PLAINTEXT", "PLAINTEXT", f"127.0.0.1:{inner}"), ("TOKENS", "SASL_SSL", f"127.0.0.1:{outer}")
    listener = "listener.name.tokens.oauthbearer"
    properties = {
        **listeners(controller, *both),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.sasl.server.callback.handler.class": f"{SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{listener}.sasl.jaas.config": f"{MODULE} required;",
        f"{listener}.connections.max.reauth.ms": "3600000",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.keys_url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": issuer.url,
        "sasl.oauthbearer.clock.skew.seconds": "0",
        **stores.broker(),
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.keys_url}"
    options = [*quick_options(kafka_archive(JARS)), allowed]
    broker = TokenBroker("tokens", directory / "tokens", inner, controller, properties, java_options=options)
    broker.stores, broker.token_port, broker.issuer = stores, outer, issuer
    with running(broker):
        yield broker

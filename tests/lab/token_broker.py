"""A real broker whose `SASL_SSL` listener takes tokens of the lab's issuer."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator

from tests.lab.brokers import JARS, KafkaBroker, listeners, running
from tests.lab.jvm import kafka_archive, quick_options
from tests.lab.ports import free_ports
from tests.lab.secured import SECURITY, Stores
from tests.lab.token_server import AUDIENCE, SECRET, Issuer

MODULE = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule"


class TokenBroker(KafkaBroker):
    """`bootstrap` is an inner listener for the lab, without a login. `token_port` takes tokens."""

    stores: Stores
    token_port: int
    issuer: Issuer

    def client(self, secret: str = SECRET, client_id: str = "mirror", more: str = "") -> Dict[str, str]:
        """Client properties as a Java client has them. The endpoint's certificate is not the broker's."""
        trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{self.issuer.certificate}"'
        return {
            "bootstrap.servers": f"127.0.0.1:{self.token_port}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{SECURITY}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.issuer.token_url,
            "sasl.jaas.config": f'{MODULE} required clientId="{client_id}" clientSecret="{secret}" '
                                f'scope="kafka.write" {trusted}{more};',
            **self.stores.client("PEM"),
        }  # fmt: skip


@contextmanager
def token_broker(directory: Path, issuer: Issuer, reauth_ms: int = 3_600_000) -> Iterator[TokenBroker]:
    """One such, killed on the way out. It ends each session at the end of its token, and after `reauth_ms`."""
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
        f"{listener}.connections.max.reauth.ms": str(reauth_ms),
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

"""`sasl.*` properties of a client in, kafka-python's keyword arguments for SASL out. Pure. Errors repeat no value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Tuple

from mirror_lib.errors import ConfigError

_PASSWORD_MECHANISMS = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_KERBEROS_MODULE = "Krb5LoginModule"
_KERBEROS_LINE = (
    f'com.sun.security.auth.module.{_KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="…" principal="…" '
    'serviceName="kafka";'
)
_SECTION = re.compile(r"\s*[\w.]+\s*\{.*", re.DOTALL)
_LINE = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\s*(.*?)\s*;\s*", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"';]+)\s*""")


@dataclass(frozen=True)
class KerberosLogin:
    """Who logs in to which Kerberos service. `keytab`, `ticket_cache` are paths; with neither, the user's tickets."""

    service: str
    principal: Optional[str] = None
    keytab: Optional[str] = None
    ticket_cache: Optional[str] = None


def sasl_options(props: Mapping[str, str]) -> Dict[str, object]:
    """`sasl_mechanism` and what goes with it; for GSSAPI `sasl_kerberos_name` is a `KerberosLogin`.

    Raises `ConfigError` for a login line that cannot be read or does not fit the mechanism, and for a mechanism beyond
    PLAIN, SCRAM and GSSAPI; `config.tokens` has those with tokens.
    """
    mechanism = props.get("sasl.mechanism", "GSSAPI").upper()
    jaas = props.get("sasl.jaas.config")
    if mechanism in _PASSWORD_MECHANISMS:
        username, password = _credentials(jaas, mechanism)
        return {"sasl_mechanism": mechanism, "sasl_plain_username": username, "sasl_plain_password": password}
    if mechanism == "GSSAPI":
        return {"sasl_mechanism": mechanism, "sasl_kerberos_name": _kerberos(props, jaas)}
    known = ", ".join([*_PASSWORD_MECHANISMS, "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"])
    raise ConfigError(f"sasl.mechanism must be one of {known}; {mechanism[:40]} cannot be used here")


def _credentials(jaas: Optional[str], mechanism: str) -> Tuple[str, str]:
    module = _PASSWORD_MECHANISMS[mechanism]
    _, options = login_line(jaas, mechanism, module, f'{module} required username="…" password="…";')
    if not options.get("username") or "password" not in options:
        raise ConfigError(f"sasl.jaas.config cannot be read; {module} needs username and password in quotes")
    if options.get("tokenauth", "").lower() == "true":
        raise ConfigError("delegation tokens (tokenauth in sasl.jaas.config) cannot be used; give a user and password")
    username = options["username"]
    if mechanism != "PLAIN":
        username = username.replace("=", "=3D").replace(",", "=2C")  # RFC 5802, saslname; Java's client does the same
    return username, options["password"]


def _kerberos(props: Mapping[str, str], jaas: Optional[str]) -> KerberosLogin:
    _, options = login_line(jaas, "GSSAPI", _KERBEROS_MODULE, _KERBEROS_LINE)
    services = {props.get("sasl.kerberos.service.name"), options.get("serviceName")} - {None, ""}
    if len(services) != 1:
        problem = "two different service names" if services else "no service name"
        raise ConfigError(f"GSSAPI has {problem}: set sasl.kerberos.service.name, or serviceName in sasl.jaas.config")
    keytab = options.get("keyTab") if options.get("useKeyTab", "").lower() == "true" else None
    if keytab is not None and not options.get("principal"):
        raise ConfigError("sasl.jaas.config has a keyTab and no principal")
    cache = options.get("ticketCache") if options.get("useTicketCache", "").lower() == "true" else None
    return KerberosLogin(str(services.pop()), options.get("principal"), keytab, cache)


def login_line(jaas: Optional[str], mechanism: str, module: str, example: str) -> Tuple[str, Mapping[str, str]]:
    """The class and the options of the login line; `module` is the class without its package.

    Raises `ConfigError`. The line is never repeated in it, because it may contain the password.
    """
    if not jaas:
        raise ConfigError(
            f"{mechanism} needs sasl.jaas.config: {example} (or a file with a KafkaClient section, named by "
            "-Djava.security.auth.login.config in KAFKA_OPTS or JDK_JAVA_OPTIONS)"
        )
    if _SECTION.fullmatch(jaas):
        raise ConfigError("sasl.jaas.config takes one login line: leave out KafkaClient and the braces around it")
    match = _LINE.fullmatch(jaas)
    options = _options(match.group(3)) if match else None
    if match is None or options is None:
        raise ConfigError(f"sasl.jaas.config cannot be read; it must be one line like {example}")
    if match.group(1).rpartition(".")[2] != module:
        raise ConfigError(f"sasl.jaas.config does not fit sasl.mechanism = {mechanism}, which needs {module}")
    return match.group(1), options


def _options(text: str) -> Optional[Dict[str, str]]:
    """`name="value"` pairs, quotes and backslashes undone; `None` where the text holds anything else."""
    options = {match.group(1): _unquoted(match.group(2)) for match in _OPTION.finditer(text)}
    return None if _OPTION.sub("", text).strip() else options


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text

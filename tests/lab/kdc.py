"""A Kerberos key distribution centre of our own (Apache Kerby), and the keytabs it gives."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from tests.lab.brokers import die_with_parent, java_command
from tests.lab.checkout import CACHE, ROOT, LabError
from tests.lab.jvm import QUICK
from tests.lab.ports import free_ports

REALM = "LAB.EXAMPLE"
JARS = CACHE / "kerby-2.0.3"

KRB5_CONF = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
"""


@dataclass(frozen=True)
class Kdc:
    """`krb5_conf` is what clients need to find it."""

    directory: Path

    @property
    def krb5_conf(self) -> Path:
        return self.directory / "client.conf"

    def keytab(self, principal: str) -> Path:
        """The file that proves to be a principal such as `kafka/localhost`."""
        return self.directory / f"{principal.replace('/', '-')}.keytab"


@contextmanager
def kdc(directory: Path, *principals: str) -> Iterator[Kdc]:
    """One such that knows these principals, gone on the way out."""
    directory.mkdir()
    (port,) = free_ports(1)
    centre = Kdc(directory)
    centre.krb5_conf.write_text(KRB5_CONF.format(realm=REALM, port=port))
    program = str(ROOT / "tests" / "lab" / "KeyCentre.java")
    command = [java_command(), *QUICK, "-cp", f"{JARS}/*", program, str(directory), REALM, str(port), *principals]
    with (directory / "kdc.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=die_with_parent
        )
    with process:
        try:
            assert process.stdout is not None
            if not any(line == "ready\n" for line in process.stdout):
                raise LabError(f"the KDC did not start: {(directory / 'kdc.log').read_text()[-500:]}")
            yield centre
        finally:
            process.kill()

"""A Kerberos key distribution centre of our own, where MIT's is installed, and the keytabs it gives."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional

from tests.lab.brokers import die_with_parent
from tests.lab.checkout import LabError
from tests.lab.ports import free_ports, is_listening

REALM = "LAB.EXAMPLE"
_SERVER_FOLDERS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])

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
KDC_CONF = """\
[kdcdefaults]
  kdc_ports = ""
  kdc_tcp_ports = {port}
[realms]
  {realm} = {{
    database_name = {directory}/principal
    key_stash_file = {directory}/stash
  }}
"""


@dataclass(frozen=True)
class Kdc:
    """`krb5_conf` is what clients need to find it."""

    directory: Path

    @property
    def krb5_conf(self) -> Path:
        return self.directory / "krb5.conf"

    def keytab(self, principal: str) -> Path:
        """Add a principal such as `kafka/localhost`; the file that proves to be it."""
        path = self.directory / f"{principal.replace('/', '-')}.keytab"
        self.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    @property
    def environment(self) -> dict[str, str]:
        own = {"KRB5_CONFIG": str(self.krb5_conf), "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf")}
        return {**os.environ, **own}

    def run(self, program: str, *arguments: str) -> None:
        subprocess.run([str(_program(program)), *arguments], env=self.environment, check=True, capture_output=True)


def is_installed() -> bool:
    return all(_program(name) for name in ("krb5kdc", "kdb5_util", "kadmin.local"))


@contextmanager
def kdc(directory: Path) -> Iterator[Kdc]:
    """One such, killed on the way out."""
    directory.mkdir()
    (port,) = free_ports(1)
    centre = Kdc(directory)
    for name, text in (("krb5.conf", KRB5_CONF), ("kdc.conf", KDC_CONF)):
        (directory / name).write_text(text.format(realm=REALM, port=port, directory=directory))
    centre.run("kdb5_util", "create", "-s", "-P", "lab")
    command = [str(_program("krb5kdc")), "-n", "-P", str(directory / "pid")]
    with (directory / "kdc.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=centre.environment, stdout=log, stderr=log, preexec_fn=die_with_parent
        )
    try:
        deadline = time.monotonic() + 20
        while not is_listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"the KDC did not start: {(directory / 'kdc.log').read_text()[-500:]}")
            time.sleep(0.05)
        yield centre
    finally:
        process.kill()
        process.wait()


def _program(name: str) -> Optional[str]:
    return shutil.which(name, path=_SERVER_FOLDERS)

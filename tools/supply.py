"""`python -m tools.supply sbom|audit [--offline]`: lists and checks the packages and jars that run with a mirror.

`sbom` writes dist/sbom.cdx.json. `audit` asks an advisory service about the locked packages and checks the licences. It
ends with 1 on a finding, and with 2 where no service answered, unless `--offline` accepts that.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
LOCKS, CACHE, SBOM = ROOT / "locks", ROOT / ".cache", ROOT / "dist" / "sbom.cdx.json"
RUNTIME, JARS = "runtime.txt", "spark-4.0.0-jars"
AUDITED = ("spark-4.0-python-3.11.txt", "tools.txt")
# A release with known vulnerabilities: a service that finds none in it is no service.
CONTROL = "urllib3==1.26.4"
# What a user of an Apache-2.0 product can take unasked. Names are from SPDX, of classifiers and of Maven's files.
ALLOWED = re.compile(
    r"(The )?Apache([ -]Software)?( License,?)?([ -](Version )?2\.0)?|MIT(-CMU)?|0BSD|Zlib|CC0-1\.0|(PSF|Python)-2\.0"
    r"|BSD([ -][23][- ]Clause)?( License)?",
    re.IGNORECASE,
)
CLASSIFIER = "License :: OSI Approved :: "


def canonical(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(name: str) -> Dict[str, str]:
    """The packages of a file in locks/ with their versions."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (LOCKS / name).read_text(encoding="utf-8"), re.MULTILINE))


def tool(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment."""
    return subprocess.run([str(Path(sys.prefix, "bin", name)), *words], capture_output=True, text=True, cwd=ROOT)


def jars() -> Iterator[Dict[str, Any]]:
    """The listed jars as components of CycloneDX, with the coordinates and licences of Ivy's report."""
    lines = (LOCKS / f"{JARS}.sha256").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    for module in ElementTree.parse(CACHE / "ivy" / JARS / f"mirror-{JARS}-default.xml").iter("module"):
        group, name = module.attrib["organisation"], module.attrib["name"]
        for revision in module.iter("revision"):
            version = revision.attrib["name"]
            digest = sums.pop(f"{name}-{version}.jar", None)
            if digest is None:
                continue  # another version took its place
            reference = f"pkg:maven/{group}/{name}@{version}?type=jar"
            yield {
                **{"type": "library", "bom-ref": reference, "purl": reference},
                **{"group": group, "name": name, "version": version},
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "licenses": [{"license": {"name": each.attrib["name"]}} for each in revision.iter("license")],
            }
    if sums:
        sys.exit(f"supply: Ivy's report lacks {', '.join(sorted(sums))}: remove .cache/{JARS} and run `make setup`")


def bill() -> Dict[str, Any]:
    """CycloneDX of the packages in locks/runtime.txt, as the environment has them, and of the jars."""
    made = tool("cyclonedx-py", "environment", "--output-reproducible", ".venv/bin/python")
    if made.returncode:
        sys.exit(f"supply: cyclonedx-py failed: {made.stderr.strip()}")
    document: Dict[str, Any] = json.loads(made.stdout)
    wanted = locked(RUNTIME)
    packages = [each for each in document["components"] if wanted.get(canonical(each["name"])) == each["version"]]
    if len(packages) != len(wanted):
        sys.exit(f"supply: .venv does not have the versions of locks/{RUNTIME}: run `make setup` with Python 3.11")
    (product,) = (each for each in document["components"] if each["name"] == "spark-kafka-mirror")
    product = {key: each for key, each in product.items() if key in ("bom-ref", "name", "version", "licenses", "purl")}
    document["metadata"]["component"] = {**product, "type": "application"}
    document["components"] = [*packages, *jars()]
    kept = {each["bom-ref"] for each in (document["metadata"]["component"], *document["components"])}
    document["dependencies"] = [
        {**each, "dependsOn": [name for name in each.get("dependsOn", ()) if name in kept]}
        for each in document["dependencies"]
        if each["ref"] in kept
    ]
    return document


def licences(component: Mapping[str, Any]) -> List[str]:
    """What a component declares: alternatives of one expression apart from each other."""
    found = []
    for each in component.get("licenses") or ():
        licence = each.get("license", {})
        words = each.get("expression") or licence.get("id") or licence.get("name", "").replace(CLASSIFIER, "")
        found += re.split(r" (?:AND|OR) ", words.strip("()"))
    return found


def unlicensed(components: Sequence[Mapping[str, Any]]) -> List[str]:
    """Components with a licence that is not on the list, or without any."""
    return [
        f"{each['name']} {each['version']}: {', '.join(licences(each)) or 'no licence'}"
        for each in components
        if not licences(each) or not all(ALLOWED.fullmatch(name) for name in licences(each))
    ]


def answered(report: str) -> Optional[List[str]]:
    """The vulnerabilities in pip-audit's JSON. `None` where a package was skipped or nothing was said: pip-audit itself
    finds no vulnerability in a package that its service does not have."""
    packages = json.loads(report)["dependencies"] if report else []
    if not packages or any("skip_reason" in each for each in packages):
        return None
    return [f"{each['name']} {each['version']}: {one['id']}" for each in packages for one in each["vulns"]]


def vulnerable() -> Optional[List[str]]:
    """The vulnerabilities of the locked packages, or `None` where no service has advisories of all of them."""
    CACHE.mkdir(exist_ok=True)
    control = CACHE / "audit-control.txt"
    control.write_text(CONTROL, encoding="utf-8")
    files = [word for name in AUDITED for word in ("-r", str(LOCKS / name))]
    for service in ("pypi", "osv"):
        asked = ("-s", service, "-f", "json", "--disable-pip")
        if answered(tool("pip-audit", *asked, "--no-deps", "-r", str(control)).stdout):
            found = answered(tool("pip-audit", *asked, "--require-hashes", *files).stdout)
            if found is not None:
                return found
        print(f"audit: the service {service} has no advisories for this machine", file=sys.stderr)
    return None


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    if arguments[:1] == ["sbom"]:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator

        text = json.dumps(bill(), indent=1) + "\n"
        fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
        if fault:
            sys.exit(f"supply: the bill is no CycloneDX 1.6: {fault}")
        SBOM.parent.mkdir(exist_ok=True)
        SBOM.write_text(text, encoding="utf-8")
        print(f"supply: {len(json.loads(text)['components'])} components in {SBOM.relative_to(ROOT)}")
        return 0
    components = bill()["components"]
    wrong, found = unlicensed(components), vulnerable()
    for each in wrong:
        print(f"audit: licence not allowed: {each}")
    for each in found or ():
        print(f"audit: known vulnerability: {each}")
    print(f"audit: licences of {len(components)} packages and jars were checked, {len(wrong)} are not allowed")
    if found is None:
        print("audit: NOT CHECKED for known vulnerabilities: no advisory service answered for every locked package")
    else:
        print(f"audit: {len(found)} known vulnerabilities in the packages of {', '.join(AUDITED)}")
    if wrong or found:
        return 1
    return 2 if found is None and "--offline" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

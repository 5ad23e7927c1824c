"""The files under conf/deploy: their settings are spark-submit.sh's, their commands parse, their parts exist."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import pytest
import yaml

from mirror_lib import cli, wheel_task
from mirror_lib.config.loader import load
from mirror_lib.spark.java import packages

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "conf" / "deploy"
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
# What a platform brings itself, or shows its own page for.
DATABRICKS_OWN = (
    *("spark.sql.extensions", "spark.sql.catalog.spark_catalog"),
    *("spark.ui.enabled", "spark.ui.showConsoleProgress"),
)


def documents(name: str) -> List[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def applications() -> Mapping[str, Any]:
    (continuous,) = documents("kubernetes/spark-application.yaml")
    (scheduled,) = documents("kubernetes/scheduled-spark-application.yaml")
    return {"continuous": continuous["spec"], "scheduled": scheduled["spec"]["template"]}


def jobs() -> Dict[str, Any]:
    (bundle,) = documents("databricks/databricks.yml")
    found: Dict[str, Any] = bundle["resources"]["jobs"]
    return found


def submitted(*words: str, command: Sequence[str] = (str(ROOT / "spark-submit.sh"),), **environ: str) -> List[str]:
    """The words of the spark-submit command that would be run."""
    full = [*command, "--dry-run", *words]
    ran = subprocess.run(full, env={**os.environ, **environ}, capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    return shlex.split(ran.stdout)


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    """What spark-submit.sh gives, the one list of it."""
    words = submitted("jobs/mirror.py", "conf/mirror.yaml")
    pairs = [words[place + 1].partition("=") for place, word in enumerate(words) if word == "--conf"]
    return {name: value for name, _, value in pairs}


def drift(given: Mapping[str, str], wanted: Mapping[str, str]) -> List[str]:
    """What differs."""
    return sorted(name for name in {*wanted, *given} if given.get(name) != wanted.get(name))


@pytest.mark.parametrize("form", ["continuous", "scheduled"])
def test_kubernetes_has_the_settings_of_spark_submit(settings: Mapping[str, str], form: str) -> None:
    given = applications()[form]["sparkConf"]
    assert drift(given, settings) == []


@pytest.mark.parametrize("job", ["mirror_once", "mirror_continuous"])
def test_databricks_has_the_settings_of_spark_submit_but_for_its_own(settings: Mapping[str, str], job: str) -> None:
    assert settings.keys() >= set(DATABRICKS_OWN)
    wanted = {name: value for name, value in settings.items() if name not in DATABRICKS_OWN}
    assert drift(jobs()[job]["job_clusters"][0]["new_cluster"]["spark_conf"], wanted) == []


def test_databricks_jobs_run_once_at_a_time_by_an_entry_point_that_raises() -> None:
    scripts = re.findall(r'"([\w-]+) = ([\w.]+):(\w+)"', (ROOT / "setup.py").read_text(encoding="utf-8"))
    points = {name: (module, function) for name, module, function in scripts}
    for name, job in jobs().items():
        (task,) = job["tasks"]
        wheel = task["python_wheel_task"]
        assert job["max_concurrent_runs"] == 1
        assert points[wheel["entry_point"]] == (wheel_task.main.__module__, wheel_task.main.__name__)
        parsed = cli.command_line().parse_args(wheel["parameters"])
        assert parsed.once == (name == "mirror_once")
        assert task["job_cluster_key"] == job["job_clusters"][0]["job_cluster_key"]


def floor(requirement: str) -> Tuple[str, Tuple[int, ...]]:
    name, _, bounds = requirement.partition(">=")
    return name, tuple(int(part) for part in bounds.partition(",")[0].split("."))


def test_databricks_installs_what_the_wheel_leaves_to_its_extra() -> None:
    assigned = [node for node in ast.parse((ROOT / "setup.py").read_text()).body if isinstance(node, ast.Assign)]
    (floors,) = [ast.literal_eval(n.value) for n in assigned if getattr(n.targets[0], "id", "") == "ARROW"]
    for job in jobs().values():
        libraries = job["tasks"][0]["libraries"]
        given = dict(floor(each["pypi"]["package"]) for each in libraries if "pypi" in each)
        wanted = dict(map(floor, floors))
        assert given.keys() == wanted.keys() and all(given[name] >= wanted[name] for name in wanted)
        assert [each["whl"] for each in libraries if "whl" in each] == ["../../../dist/*.whl"]


def references(text: str) -> List[str]:
    return re.findall(r"\$\{env:(\w+)\}", text)


def test_secrets_of_the_databricks_configuration_come_from_a_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    path = DEPLOY / "databricks" / "mirror.yaml"
    line = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
    for job in jobs().values():
        secrets = job["job_clusters"][0]["new_cluster"]["spark_env_vars"]
        assert secrets.keys() == set(references(path.read_text()))
        assert all(re.fullmatch(r"\{\{secrets/[\w-]+/[\w-]+\}\}", value) for value in secrets.values())
    for name in references(path.read_text()):
        monkeypatch.setenv(name, line)
    config = load([str(path)])
    assert [flow.name for flow in config.flows] == ["source->target"] and not config.warnings


def test_kubernetes_configuration_loads_and_its_mounts_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {document["kind"]: document for document in documents("kubernetes/base.yaml")}
    text = base["ConfigMap"]["data"]["mirror.yaml"]
    line = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
    for name in references(text):
        monkeypatch.setenv(name, line)
    (tmp_path / "mirror.yaml").write_text(text)
    config = load([str(tmp_path / "mirror.yaml")])
    for spec in applications().values():
        assert spec["arguments"][0] == "/etc/mirror/mirror.yaml"
        cli.command_line().parse_args(["run", *spec["arguments"]])
        volumes = {each["name"]: each for each in spec["volumes"]}
        assert volumes["config"]["configMap"]["name"] == base["ConfigMap"]["metadata"]["name"]
        claim = volumes["state"]["persistentVolumeClaim"]["claimName"]
        assert claim == base["PersistentVolumeClaim"]["metadata"]["name"]
        for pod in (spec["driver"], spec["executor"]):
            paths = [mount["mountPath"] for mount in pod["volumeMounts"] if mount["name"] == "state"]
            assert any(config.state.startswith(f"{path}/") for path in paths)
            assert pod["labels"] == {"app": base["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]["app"]}
        assert spec["driver"]["serviceAccount"] == base["ServiceAccount"]["metadata"]["name"]


def test_image_has_one_spark_and_the_delta_that_fits_it() -> None:
    text = (DEPLOY / "kubernetes" / "Dockerfile").read_text()
    (spark,) = re.findall(r"^FROM \S+/spark:([\d.]+)-", text, re.MULTILINE)
    delta = packages(spark)[1].rpartition(":")[2]
    assert f"delta-spark=={delta}" in text
    assert all(spec["sparkVersion"] == spark for spec in applications().values())
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for word in line.split()]
    # Spark looks for no wildcard in `local:` addresses, so the image has the jars where Spark looks by itself.
    assert f"COPY .cache/spark-{spark}-jars /opt/spark/jars" in text
    assert not any("deps" in spec for spec in applications().values())
    assert {"spark-submit.sh", "docs/fix/codes.md"} <= set(copied)
    assert all((ROOT / word).exists() for word in copied if not word.startswith(".cache/"))


def test_driver_service_selects_what_the_network_policy_lets_executors_reach() -> None:
    (service,) = documents("kubernetes/driver-service.yaml")
    (policy,) = [each for each in documents("kubernetes/base.yaml") if each["kind"] == "NetworkPolicy"]
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"]
    # Spark and the mirror choose ports: the rule may name none.
    assert all("ports" not in rule for rule in policy["spec"]["ingress"])


def started() -> Mapping[str, str]:
    """By platform, the shell command that starts the mirror."""
    (step,) = json.loads((DEPLOY / "emr" / "step.json").read_text())
    (workflow,) = documents("dataproc/workflow.yaml")
    cron = (DEPLOY / "cron" / "mirror").read_text().splitlines()[-1]
    tree = ast.parse((DEPLOY / "airflow" / "mirror_dag.py").read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    (command,) = [ast.literal_eval(n.value) for n in assigned if getattr(n.targets[0], "id", "") == "COMMAND"]
    return {
        "emr": shlex.join(step["Args"]),
        "dataproc": workflow["jobs"][0]["pigJob"]["queryList"]["queries"][0],
        "cron": cron.partition("/run/lock/mirror.lock ")[2].partition(" >>")[0],
        "airflow": command,
    }


@pytest.mark.parametrize("platform", ["emr", "dataproc", "cron", "airflow"])
def test_each_schedule_makes_one_run_to_the_present_end(platform: str) -> None:
    words = shlex.split(started()[platform])
    job = words.index("/etc/mirror/mirror.yaml")
    assert words[job - 1].rpartition("/")[2] in ("submit.sh", "mirror.py")
    assert cli.command_line().parse_args(["run", *words[job:]]).once


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash(script: Path) -> None:
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True).returncode == 0
    assert os.access(script, os.X_OK)


def test_the_archive_of_pack_is_what_submit_starts_on_yarn(tmp_path: Path) -> None:
    subprocess.run([str(DEPLOY / "yarn" / "pack.sh")], cwd=tmp_path, check=True, capture_output=True)
    with tarfile.open(tmp_path / "mirror.tar.gz") as archive:
        archive.extractall(tmp_path)
    home = tmp_path / "mirror"
    assert "### MIR-101" in (home / "mirror_lib" / "codes.md").read_text()
    (home / ".venv").symlink_to(sys.prefix)
    config = str(home / "mirror.yaml")
    words = submitted(
        *("--queue", "etl", "--conf=spark.executor.cores=2", config, "--once"),
        command=[str(home / "submit.sh")],
        MIRROR_HOME=str(home),
    )
    assert words[words.index("--master") + 1] == "yarn"
    assert words[words.index("--queue") + 1] == "etl"
    assert words[-3:] == [str(home / "jobs" / "mirror.py"), config, "--once"]


def packed(folder: Path) -> str:
    """A stand-in for Python in the folder of the archive: it makes no environment, as without a network."""
    subprocess.run([str(DEPLOY / "yarn" / "pack.sh")], cwd=folder, check=True, capture_output=True)
    python = folder / "a-python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ]\n')
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize("reported", ["arguments", "metadata"])
def test_install_takes_the_archive_and_the_configuration_that_it_is_told(tmp_path: Path, reported: str) -> None:
    """Up to the environment, at which the script ends."""
    config, tools, python = tmp_path / "given.yaml", tmp_path / "tools", packed(tmp_path)
    config.write_text("clusters: {}\n")
    tools.mkdir()
    given = {"archive": str(tmp_path / "mirror.tar.gz"), "python": python, "config": str(config)}
    answers = "".join(f"attributes/mirror-{name}) echo {value} ;;\n" for name, value in given.items())
    (tools / "get_metadata_value").write_text(f"#!/bin/sh\ncase $1 in\n{answers}esac\n")
    (tools / "get_metadata_value").chmod(0o755)
    environ = {**os.environ, "PATH": f"{os.environ['PATH']}:{tools}", "MIRROR_HOME": str(tmp_path / "home")}
    words = list(given.values()) if reported == "arguments" else []
    subprocess.run(
        [str(DEPLOY / "yarn" / "install.sh"), *words], env={**environ, "MIRROR_ETC": str(tmp_path / "etc")}
    )
    assert (tmp_path / "home" / "submit.sh").exists()
    written = tmp_path / "etc" / "mirror.yaml"
    assert written.read_text() == config.read_text() and written.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("saved", ["home", "home.old"], ids=["first attempt", "after a killed one"])
def test_install_that_fails_leaves_the_former_installation(tmp_path: Path, saved: str) -> None:
    python = packed(tmp_path)
    for folder in {"home", saved}:
        (tmp_path / folder).mkdir()
    (tmp_path / saved / "former").touch()
    environ = {**os.environ, "MIRROR_HOME": str(tmp_path / "home"), "MIRROR_ETC": str(tmp_path / "etc")}
    command = [str(DEPLOY / "yarn" / "install.sh"), str(tmp_path / "mirror.tar.gz"), python]
    assert subprocess.run(command, env=environ, capture_output=True, text=True).returncode != 0
    assert [each.name for each in (tmp_path / "home").iterdir()] == ["former"]
    assert not (tmp_path / "home.old").exists() and not (tmp_path / "home.new").exists()


def test_submit_names_what_is_missing() -> None:
    for words in (["--queue", "etl"], ["--queue"]):
        ran = subprocess.run([str(DEPLOY / "yarn" / "submit.sh"), *words], capture_output=True, text=True)
        assert (ran.returncode, ran.stdout) == (2, "") and "submit.sh: " in ran.stderr

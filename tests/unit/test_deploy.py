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
from typing import Any, Dict, List, Mapping, Sequence

import pytest
import yaml

from mirror_lib import cli, wheel_task
from mirror_lib.config.model import MirrorConfig
from mirror_lib.spark.java import packages
from tests.lab.checkout import ROOT
from tests.unit.configs import YAML, read

DEPLOY = ROOT / "conf" / "deploy"
# What a platform brings itself, or shows its own page for.
DATABRICKS_OWN = [f"spark.{name}" for name in (
    "sql.extensions", "sql.catalog.spark_catalog", "ui.enabled", "ui.showConsoleProgress"
)]  # fmt: skip


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


def test_platforms_have_the_settings_of_spark_submit(settings: Mapping[str, str]) -> None:
    assert settings.keys() >= set(DATABRICKS_OWN)
    for spec in applications().values():
        assert spec["sparkConf"] == settings
    for job in jobs().values():
        wanted = {name: value for name, value in settings.items() if name not in DATABRICKS_OWN}
        assert job["job_clusters"][0]["new_cluster"]["spark_conf"] == wanted


def assigned(path: Path, name: str) -> Any:
    """The literal that a module gives the name."""
    found = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
    (value,) = [node.value for node in found if getattr(node.targets[0], "id", "") == name]
    return ast.literal_eval(value)


def test_databricks_jobs_run_once_at_a_time_by_an_entry_point_that_raises_with_the_packages_of_the_wheel() -> None:
    scripts = re.findall(r'"([\w-]+) = ([\w.]+):(\w+)"', (ROOT / "setup.py").read_text(encoding="utf-8"))
    points = {name: (module, function) for name, module, function in scripts}
    wanted = assigned(ROOT / "setup.py", "ARROW")
    for name, job in jobs().items():
        (task,) = job["tasks"]
        wheel = task["python_wheel_task"]
        assert job["max_concurrent_runs"] == 1
        assert points[wheel["entry_point"]] == (wheel_task.main.__module__, wheel_task.main.__name__)
        parsed = cli.command_line().parse_args(wheel["parameters"])
        assert parsed.once == (name == "mirror_once")
        assert task["job_cluster_key"] == job["job_clusters"][0]["job_cluster_key"]
        given = [each["pypi"]["package"] for each in task["libraries"] if "pypi" in each]
        assert [each.partition(">=")[0] for each in given] == [each.partition(">=")[0] for each in wanted]
        assert [each["whl"] for each in task["libraries"] if "whl" in each] == ["../../../dist/*.whl"]


def loaded(text: str, folder: Path) -> MirrorConfig:
    """The configuration with a login for each reference of it."""
    line = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
    return read(folder, text, YAML, dict.fromkeys(references(text), line))


def references(text: str) -> List[str]:
    return re.findall(r"\$\{env:(\w+)\}", text)


def test_databricks_configuration_loads_with_secrets_from_a_scope(tmp_path: Path) -> None:
    text = (DEPLOY / "databricks" / "mirror.yaml").read_text()
    for job in jobs().values():
        secrets = job["job_clusters"][0]["new_cluster"]["spark_env_vars"]
        assert secrets.keys() == set(references(text))
        assert all(re.fullmatch(r"\{\{secrets/[\w-]+/[\w-]+\}\}", value) for value in secrets.values())
    assert not loaded(text, tmp_path).warnings


def test_kubernetes_configuration_loads_and_its_mounts_exist(tmp_path: Path) -> None:
    base = {document["kind"]: document for document in documents("kubernetes/base.yaml")}
    (service,) = documents("kubernetes/driver-service.yaml")
    names = {kind: document["metadata"]["name"] for kind, document in base.items()}
    labels = base["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    config = loaded(base["ConfigMap"]["data"]["mirror.yaml"], tmp_path)
    assert service["spec"]["selector"] == labels
    # Spark and the mirror choose ports: the rule may name none.
    assert all("ports" not in rule for rule in base["NetworkPolicy"]["spec"]["ingress"])
    for spec in applications().values():
        assert spec["arguments"][0] == "/etc/mirror/mirror.yaml"
        cli.command_line().parse_args(["run", *spec["arguments"]])
        volumes = {each["name"]: each for each in spec["volumes"]}
        assert volumes["config"]["configMap"]["name"] == names["ConfigMap"]
        assert volumes["state"]["persistentVolumeClaim"]["claimName"] == names["PersistentVolumeClaim"]
        assert spec["driver"]["serviceAccount"] == names["ServiceAccount"]
        for pod in (spec["driver"], spec["executor"]):
            paths = [mount["mountPath"] for mount in pod["volumeMounts"] if mount["name"] == "state"]
            assert any(config.state.startswith(f"{path}/") for path in paths)
            assert pod["labels"] == {"app": labels["app"]}


def test_image_has_one_spark_and_the_delta_that_fits_it() -> None:
    text = (DEPLOY / "kubernetes" / "Dockerfile").read_text()
    (spark,) = re.findall(r"^FROM \S+/spark:([\d.]+)-", text, re.MULTILINE)
    assert f"delta-spark=={packages(spark)[1].rpartition(':')[2]}" in text
    assert f"COPY .cache/spark-{spark}-jars /opt/spark/jars" in text
    assert all(spec["sparkVersion"] == spark and "deps" not in spec for spec in applications().values())
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert {"spark-submit.sh", "docs/fix/codes.md"} <= set(copied)
    assert all((ROOT / word).exists() for word in copied if not word.startswith(".cache/"))


def test_each_schedule_makes_one_run_to_the_present_end() -> None:
    (step,) = json.loads((DEPLOY / "emr" / "step.json").read_text())
    (workflow,) = documents("dataproc/workflow.yaml")
    cron = (DEPLOY / "cron" / "mirror").read_text().splitlines()[-1]
    for command in (
        shlex.join(step["Args"]),
        # Pig drops what follows -- without quotes.
        workflow["jobs"][0]["pigJob"]["queryList"]["queries"][0].partition(" --")[0],
        cron.partition("/run/lock/mirror.lock ")[2].partition(" >>")[0],
        assigned(DEPLOY / "airflow" / "mirror_dag.py", "COMMAND"),
    ):
        words = shlex.split(command)
        job = words.index("/etc/mirror/mirror.yaml")
        assert words[job - 1].rpartition("/")[2] in ("submit.sh", "mirror.py")
        assert cli.command_line().parse_args(["run", *words[job:]]).once


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


def installed(folder: Path, *words: str, tools: Path = Path("/")) -> int:
    """The exit code of install.sh with an archive, and a stand-in for Python that makes no environment."""
    subprocess.run([str(DEPLOY / "yarn" / "pack.sh")], cwd=folder, check=True, capture_output=True)
    (folder / "a-python").write_text('#!/bin/sh\n[ "$1" = -c ]\n')
    (folder / "a-python").chmod(0o755)
    places = {"MIRROR_HOME": str(folder / "home"), "MIRROR_ETC": str(folder / "etc")}
    environ = {**os.environ, "PATH": f"{os.environ['PATH']}:{tools}", **places}
    command = [str(DEPLOY / "yarn" / "install.sh"), *words]
    return subprocess.run(command, env=environ, capture_output=True).returncode


@pytest.mark.parametrize("given_by", ["arguments", "metadata"])
def test_install_takes_the_given_archive_and_configuration(tmp_path: Path, given_by: str) -> None:
    """Up to the environment, at which the script ends."""
    config, tools = tmp_path / "given.yaml", tmp_path / "tools"
    config.write_text("clusters: {}\n")
    tools.mkdir()
    given = {name: str(tmp_path / file) for name, file in (("archive", "mirror.tar.gz"), ("python", "a-python"))}
    given["config"] = str(config)
    answers = "".join(f"attributes/mirror-{name}) echo {value} ;;\n" for name, value in given.items())
    (tools / "get_metadata_value").write_text(f"#!/bin/sh\ncase $1 in\n{answers}esac\n")
    (tools / "get_metadata_value").chmod(0o755)
    installed(tmp_path, *(given.values() if given_by == "arguments" else ()), tools=tools)
    assert (tmp_path / "home" / "submit.sh").exists()
    written = tmp_path / "etc" / "mirror.yaml"
    assert written.read_text() == config.read_text() and written.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("saved", ["home", "home.old"], ids=["first attempt", "after a killed one"])
def test_install_that_fails_leaves_the_former_installation(tmp_path: Path, saved: str) -> None:
    for folder in {"home", saved}:
        (tmp_path / folder).mkdir()
    (tmp_path / saved / "former").touch()
    assert installed(tmp_path, str(tmp_path / "mirror.tar.gz"), str(tmp_path / "a-python")) != 0
    assert [each.name for each in (tmp_path / "home").iterdir()] == ["former"]
    assert not (tmp_path / "home.old").exists() and not (tmp_path / "home.new").exists()

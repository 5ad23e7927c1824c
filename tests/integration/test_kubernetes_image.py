"""The image's folders and the applications' settings, as conf/deploy/kubernetes has them, on executors of their own.

No pod is started: Spark's `local-cluster` takes the place of Kubernetes, and a folder the place of the image's `/opt`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Mapping

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.lab.checkout import ROOT, jars_folder
from tests.lab.one_flow import NewFlow
from tests.lab.standalone import SMALL, SPARK_HOME
from tests.lab.submitted import environment

pytestmark = pytest.mark.long

KUBERNETES = ROOT / "conf" / "deploy" / "kubernetes"


def image_spark(folder: Path) -> Path:
    """Spark's home in the image: what the Dockerfile copies to its jars lies next to Spark's own."""
    home, jars = folder / "spark", folder / "spark" / "jars"
    jars.mkdir(parents=True)
    for path in SPARK_HOME.iterdir():
        if path.name != "jars":
            (home / path.name).symlink_to(path)
    text = (KUBERNETES / "Dockerfile").read_text()
    copied = re.findall(r"^COPY \.cache/\S+ /opt/spark/jars$", text, re.MULTILINE)
    removed = re.findall(r"^RUN rm /opt/spark/jars/(\S+)$", text, re.MULTILINE)
    for source in (SPARK_HOME / "jars", *(jars_folder() for _ in copied)):
        for jar in source.glob("*.jar"):
            if jar.name not in removed and not (jars / jar.name).exists():
                (jars / jar.name).symlink_to(jar)
    return home


def specification() -> Mapping[str, Any]:
    text = (KUBERNETES / "scheduled-spark-application.yaml").read_text()
    template: Mapping[str, Any] = yaml.safe_load(text)["spec"]["template"]
    return template


@pytest.mark.parametrize("whole", [True, False], ids=["image", "image without the jars"])
def test_application_copies_with_the_jars_of_its_image(
    new_flow: NewFlow, spark: SparkSession, tmp_path: Path, whole: bool
) -> None:
    flow = new_flow("image", records=100)
    spec, home = specification(), image_spark(tmp_path) if whole else SPARK_HOME
    settings = [word for name, value in spec["sparkConf"].items() for word in ("--conf", f"{name}={value}")]
    job = str(ROOT / "jobs" / Path(spec["mainApplicationFile"]).name)
    command = [str(home / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]", *SMALL, *settings, job]
    environ = environment(SPARK_HOME=str(home), PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
    ran = subprocess.run(
        [*command, str(flow.config), *spec["arguments"][1:]],
        env=environ,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert (ran.returncode == 0) == whole, ran.stdout
    if whole:
        flow.assert_exact(spark)

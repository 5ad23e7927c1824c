"""Package metadata. Spark is an extra, because platforms bring their own."""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

# Bounds of what runs with a mirror are versions that were tested: `make test-lines` runs the lower ones with Spark 3.3
# on Python 3.8, and `make test` runs the newest below the upper ones.
ARROW = ["pyarrow>=11.0.0,<27", "pandas>=1.5.3,<4"]
README = Path(__file__).with_name("README.md")
# AWS's own signer of IAM logins to Amazon MSK.
MSK_IAM = ["aws-msk-iam-sasl-signer-python>=1.0.2,<2"]
# From 0.20 on its HTTP server can be closed. The last release for Python 3.8 is 0.21.1.
METRICS = ["prometheus-client>=0.20.0,<0.27"]
# 14 is the last one for Python 3.8.
SCREEN = ["rich>=13.9.4,<16"]
# `mirror status` and `report`: Delta's tables without Java. Later than 0.17.4 it needs a newer pyarrow than 11.
STATUS = ["deltalake>=0.17.4,<2", *ARROW]

setup(
    name="spark-kafka-mirror",
    version="0.1.0",
    description="Replicates Kafka topics between clusters, exactly, on Spark Structured Streaming",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["mirror_lib", "mirror_lib.*"]),
    package_data={
        "mirror_lib": ["py.typed", "log4j2.properties", "codes.md"],
        "mirror_lib.report": ["page.html", "page.css", "page.js"],
    },
    python_requires=">=3.8",
    # Exactly this one: its private names are overridden, and tests/unit/test_kafka_python.py holds them to it.
    install_requires=[
        *("kafka-python==3.0.12", "google-crc32c>=1.5.0,<2", "cramjam>=2.8.0,<3"),
        *("pyyaml>=6.0,<7", "javaproperties>=0.8.1,<0.9"),
    ],
    extras_require={
        "spark": ["pyspark>=3.3.1,<4.3", "delta-spark>=2.3.0,<4.5", *ARROW],
        # For a Spark that is there already: a pyspark of ours would be taken instead of it.
        "platform": ARROW,
        "status": STATUS,
        # The page of `mirror report` and its charts. 3.7 is the last matplotlib for Python 3.8.
        "report": ["jinja2>=3.1.0,<4", "matplotlib>=3.7.0,<4", *STATUS],
        "msk-iam": MSK_IAM,
        "metrics": METRICS,
        # The live table of `mirror run` on a terminal; without it there are plain lines.
        "screen": SCREEN,
        # zstandard, lz4 and python-snappy read back what cramjam wrote; the lab's issuer signs tokens with pyjwt.
        "test": [
            *("pytest", "pytest-xdist", "hypothesis", "confluent-kafka", "zstandard", "lz4", "python-snappy"),
            *("pyjwt", "cryptography", *MSK_IAM, *METRICS),
        ],
        # Spark Connect's client, for the test that it is refused.
        "connect": ["grpcio>=1.67", "grpcio-status>=1.67", "googleapis-common-protos"],
        # Linters are pinned: each version finds more. This mypy has no release for Python 3.9.
        "dev": ["ruff>=0.17,<0.18", 'mypy>=2.4,<2.5; python_version >= "3.10"', "types-PyYAML"],
    },
    entry_points={
        "console_scripts": ["mirror = mirror_lib.cli:main", "mirror-databricks = mirror_lib.wheel_task:main"],
    },
)

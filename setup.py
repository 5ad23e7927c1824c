"""Package metadata. Spark is an extra, because platforms bring their own."""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

README = Path(__file__).with_name("README.md")

setup(
    name="spark-kafka-mirror",
    version="0.1.0",
    description="Replicates Kafka topics between clusters, exactly, on Spark Structured Streaming",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["mirror_lib", "mirror_lib.*"]),
    package_data={"mirror_lib": ["py.typed", "log4j2.properties"]},
    python_requires=">=3.8",
    install_requires=["kafka-python>=3.0.12,<4", "google-crc32c", "cramjam", "pyyaml", "javaproperties"],
    extras_require={
        "spark": ["pyspark>=3.3,<5", "delta-spark>=2.3,<5", "pyarrow>=11", "pandas"],
        # zstandard, lz4 and python-snappy read back what cramjam wrote. Linters are pinned: each version finds more.
        "dev": [
            *("pytest", "pytest-xdist", "hypothesis", "confluent-kafka", "zstandard", "lz4", "python-snappy"),
            *("ruff>=0.17,<0.18", "mypy>=2.4,<2.5", "types-PyYAML"),
        ],
    },
    entry_points={"console_scripts": ["mirror = mirror_lib.cli:main"]},
)

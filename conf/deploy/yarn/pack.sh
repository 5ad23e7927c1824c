#!/usr/bin/env bash
# Makes mirror.tar.gz, which install.sh unpacks on each node: ./pack.sh [SPARK-VERSION PYTHON-VERSION]
#   ./pack.sh                the checkout alone; nodes fetch packages from PyPI, and Spark its connectors by Ivy
#   ./pack.sh 3.3.1 3.8      for a closed network: also the wheels for that Python and the jars for that Spark
# The jars come from .cache/spark-VERSION-jars, which `make setup SPARK=3.3` fills, or from MIRROR_JARS_DIR.
set -euo pipefail
home=$(cd "$(dirname "$0")/../../.." && pwd)
spark=${1:-} python=${2:-}
fail() { printf 'pack.sh: %s\n' "$*" >&2; exit 2; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/mirror"
cp -RL "$home"/{mirror_lib,jobs,setup.py,pyproject.toml,README.md,spark-submit.sh} "$home/conf/deploy/yarn/submit.sh" "$scratch/mirror/"
find "$scratch/mirror" -name __pycache__ -prune -exec rm -rf {} +
if [[ -n $spark ]]; then
    [[ -n $python ]] || fail "name the Python of the nodes too: ./pack.sh $spark 3.8"
    jars=${MIRROR_JARS_DIR:-$home/.cache/spark-$spark-jars}
    [[ -d $jars ]] || fail "there is no folder $jars: name one in MIRROR_JARS_DIR"
    mkdir "$scratch/mirror/jars" && cp "$jars"/*.jar "$scratch/mirror/jars/"
    # Delta's Python part comes with its package, and not with a folder of jars. It imports importlib_metadata.
    delta=$(cd "$home" && python3 -m mirror_lib.spark.java "$spark") || fail "no Delta is known for Spark $spark"
    wheels=$scratch/mirror/wheels
    python3 -m pip wheel -q --no-deps --wheel-dir "$wheels" "$scratch/mirror"
    rm -rf "$scratch/mirror"/{build,*.egg-info}
    # For the oldest nodes: HDInsight 5.1 has glibc 2.27, and pip would take wheels for this machine's glibc.
    for_nodes=(--dest "$wheels" --find-links "$wheels" --only-binary ":all:" --python-version "$python"
        --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64)
    python3 -m pip download -q "${for_nodes[@]}" "spark-kafka-mirror[platform,status]" importlib_metadata setuptools wheel
    python3 -m pip download -q "${for_nodes[@]}" --no-deps "delta-spark==${delta##*:}"
fi
tar -C "$scratch" -czf mirror.tar.gz mirror
echo "$PWD/mirror.tar.gz"

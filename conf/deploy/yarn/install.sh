#!/usr/bin/env bash
# Installs the mirror on a node: an HDInsight script action, an EMR bootstrap action, a Dataproc initialization action.
#   install.sh ARCHIVE [PYTHON]
# ARCHIVE is mirror.tar.gz of pack.sh: a path, or an abfs://, wasb://, s3://, gs:// or https:// address. PYTHON is 3.8 or newer.
# Every node gets the same folder, so driver and executors find the same Python under the same path. It can run again.
set -euo pipefail
archive=${1:?usage: install.sh ARCHIVE [PYTHON]} python=${2:-python3} home=${MIRROR_HOME:-/opt/mirror}
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

"$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 8))' ||
    fail "$python is older than 3.8, or has no venv: name another Python as the second argument"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
case $archive in
    s3://*) aws s3 cp --quiet "$archive" "$scratch/mirror.tar.gz" ;;
    gs://*) gsutil -q cp "$archive" "$scratch/mirror.tar.gz" ;;
    abfs://* | abfss://* | wasb://* | wasbs://*) hadoop fs -copyToLocal "$archive" "$scratch/mirror.tar.gz" ;;
    https://*) curl -fsSL -o "$scratch/mirror.tar.gz" "$archive" ;;
    *) cp "$archive" "$scratch/mirror.tar.gz" ;;
esac
tar -C "$scratch" -xzf "$scratch/mirror.tar.gz"

mkdir -p "$(dirname "$home")"
rm -rf "$home.new"
mv "$scratch/mirror" "$home.new"
# An environment keeps its path in its scripts, so it is made where it stays.
rm -rf "$home.old"
if [[ -d $home ]]; then mv "$home" "$home.old"; fi
mv "$home.new" "$home"
chmod -R a+rX "$home"
"$python" -m venv "$home/.venv"
pip=("$home/.venv/bin/python" -m pip install -q)
# Not pyspark: it would be taken instead of the cluster's.
if [[ -d $home/wheels ]]; then
    pip+=(--no-index --find-links "$home/wheels")
    "${pip[@]}" "spark-kafka-mirror[platform]" importlib_metadata
    "${pip[@]}" --no-deps delta-spark
else
    "${pip[@]}" "${home}[platform]"
fi
"$home/.venv/bin/python" -c 'import mirror_lib, kafka, pyarrow, pandas'
rm -rf "$home.old"

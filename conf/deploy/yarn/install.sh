#!/usr/bin/env bash
# Installs the mirror on a node: an HDInsight script action, an EMR bootstrap action, a Dataproc initialization action.
#   install.sh ARCHIVE [PYTHON [CONFIG]]
# ARCHIVE is mirror.tar.gz of pack.sh: a path, or an abfs://, wasb://, s3://, gs:// or https:// address. PYTHON is 3.8 or newer,
# by default python3. CONFIG, an address too, becomes /etc/mirror/mirror.yaml. Where arguments cannot be given, as on Dataproc,
# the metadata mirror-archive, mirror-python and mirror-config count.
# Every node gets the same folder, so driver and executors find the same Python under the same path. It can run again: if that
# fails, the former installation stays.
set -euo pipefail
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
home=${MIRROR_HOME:-/opt/mirror} etc=${MIRROR_ETC:-/etc/mirror}

# EMR's bootstrap actions run as a user that may become root.
if [[ ! -w $(dirname "$home") || ! -w $(dirname "$etc") ]] && ((EUID != 0)); then
    exec sudo -n MIRROR_HOME="$home" MIRROR_ETC="$etc" bash "$0" "$@"
fi
metadata() { PATH=$PATH:/usr/share/google get_metadata_value "attributes/$1" 2>/dev/null || true; }
archive=${1:-$(metadata mirror-archive)} python=${2:-$(metadata mirror-python)} config=${3:-$(metadata mirror-config)}
python=${python:-python3}
[[ -n $archive ]] || fail "usage: install.sh ARCHIVE [PYTHON [CONFIG]]"
"$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 8))' ||
    fail "$python is older than 3.8, or has no venv: name another Python as the second argument"
scratch=$(mktemp -d) done=
end() {
    rm -rf "$scratch"
    if [[ -z $done && -d $home.old ]]; then
        rm -rf "$home" && mv "$home.old" "$home"
        echo "install.sh: failed, and the former installation in $home is back" >&2
    fi
}
trap end EXIT
fetch() { # address, file
    case $1 in
        s3://*) aws s3 cp --quiet "$1" "$2" ;;
        gs://*) gsutil -q cp "$1" "$2" ;;
        abfs://* | abfss://* | wasb://* | wasbs://*) hadoop fs -copyToLocal "$1" "$2" ;;
        https://*) curl -fsSL -o "$2" "$1" ;;
        *) cp "$1" "$2" ;;
    esac
}
fetch "$archive" "$scratch/mirror.tar.gz"
if [[ -n $config ]]; then
    mkdir -p "$etc"
    fetch "$config" "$scratch/mirror.yaml"
    # It may hold logins: for the user that installs alone, who is also the one of EMR's steps.
    install -m 600 -o "${SUDO_USER:-$(id -un)}" "$scratch/mirror.yaml" "$etc/mirror.yaml"
fi
tar -C "$scratch" -xzf "$scratch/mirror.tar.gz"

mkdir -p "$(dirname "$home")"
rm -rf "$home.new" "$home.trash"
mv "$scratch/mirror" "$home.new"
# An environment keeps its path in its scripts, so it is made where it stays.
# A former installation that is there already was saved by a run that was killed; what it left is incomplete.
if [[ -d $home.old ]]; then rm -rf "$home"; elif [[ -d $home ]]; then mv "$home" "$home.old"; fi
mv "$home.new" "$home"
chmod -R a+rX "$home"
"$python" -m venv "$home/.venv"
pip=("$home/.venv/bin/python" -m pip install -q)
# Not pyspark: it would be taken instead of the cluster's.
if [[ -d $home/wheels ]]; then
    pip+=(--no-index --find-links "$home/wheels")
    "${pip[@]}" "spark-kafka-mirror[platform,status]" importlib_metadata
    "${pip[@]}" --no-deps delta-spark
else
    "${pip[@]}" "${home}[platform,status]"
fi
"$home/.venv/bin/python" -c 'import mirror_lib, kafka, pyarrow, pandas'
# In one step: a folder .old is whole, whenever this is killed.
if [[ -d $home.old ]]; then mv "$home.old" "$home.trash"; fi
done=1
rm -rf "$home.trash"

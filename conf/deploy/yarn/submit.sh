#!/usr/bin/env bash
# Starts the mirror on YARN, from a node on which install.sh ran: submit.sh [SPARK-SUBMIT OPTIONS] CONFIG [OPTIONS]
# It ends as the mirror does. MIRROR_JOB=translate_offsets.py takes the second job.
set -euo pipefail
home=${MIRROR_HOME:-/opt/mirror}
if [[ -z ${SPARK_HOME:-} ]]; then
    # HDInsight's and HDP's, then EMR's and Dataproc's. Elsewhere spark-submit.sh finds the spark-submit of the PATH.
    for found in /usr/hdp/current/spark3-client /usr/lib/spark; do
        if [[ -x $found/bin/spark-submit ]]; then export SPARK_HOME=$found && break; fi
    done
fi
# install.sh made it under the same path on every node.
export MIRROR_VENV=$home/.venv PYSPARK_PYTHON=$home/.venv/bin/python
if [[ -d $home/jars ]]; then export MIRROR_JARS_DIR=$home/jars; fi

options=()
while (($#)) && [[ $1 == -* ]]; do
    if [[ $1 == *=* || $1 == --dry-run || $1 == --verbose ]]; then options+=("$1"); shift; continue; fi
    (($# > 1)) || { echo "submit.sh: $1 needs a value" >&2; exit 2; }
    options+=("$1" "$2"); shift 2
done
(($#)) || { echo "submit.sh: name a configuration" >&2; exit 2; }
exec "$home/spark-submit.sh" --master yarn ${options[@]+"${options[@]}"} "$home/jobs/${MIRROR_JOB:-mirror.py}" "$@"

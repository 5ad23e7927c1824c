#!/usr/bin/env bash
# Runs a job of this project on any Spark: ./spark-submit.sh [--dry-run] [SPARK-SUBMIT OPTIONS] jobs/mirror.py CONFIG ...
# It adds the Kafka connector and Delta that fit the Spark that runs, mirror_lib, and settings; your options win.
#   MIRROR_JARS_DIR  a folder of jars to use instead of downloading them (closed networks)
#   MIRROR_VENV      the Python environment to use (default: .venv beside this file, if it is there; empty: none)
#   MIRROR_UI=1      start Spark's web page
#   MIRROR_CLASSES   an archive of Java classes for a quick start (default: .cache/spark-VERSION-classes.jsa beside this
#                    file, if it is there). --keep-classes makes it of what the job loads, which then ends a bit later
# SIGTERM and SIGINT reach the Python driver, which then ends cleanly; a second one kills it. Exits as the job does.
set -euo pipefail
home=$(cd "$(dirname "$0")" && pwd)

fail() { printf 'spark-submit.sh: %s\n' "$*" >&2; exit 2; }
first() { [[ -e $1 ]] && printf '%s' "$1"; }

# --- the caller's options: lists are merged with ours, the rest is passed on as it is ---
dry_run= keep_classes= master= deploy_mode=client packages= jars= py_files= properties_file= class_path= options=()
while (($#)) && [[ $1 == -* ]]; do
    case $1 in
        --dry-run) dry_run=1; shift; continue ;;
        --keep-classes) keep_classes=1; shift; continue ;;
        -h | --help) sed -n '2,9s/^# //p' "$0"; exit 0 ;;
        -v | --verbose | --version | --supervise) options+=("$1"); shift; continue ;;
        --*=*) name=${1%%=*} value=${1#*=}; shift ;;
        *) (($# > 1)) || fail "$1 needs a value"; name=$1 value=$2; shift 2 ;;
    esac
    case $name in
        --packages) packages=$value ;;
        --jars) jars=$value ;;
        --py-files) py_files=$value ;;
        --master) master=$value ;;
        --deploy-mode) deploy_mode=$value; options+=("$name" "$value") ;;
        --properties-file) properties_file=$value; options+=("$name" "$value") ;;
        *) [[ $name == --conf && $value == spark.master=* ]] && master=${value#*=}
            [[ $name == --driver-class-path || $value == spark.driver.extraClassPath=* ]] && class_path=caller
            options+=("$name" "$value") ;;
    esac
done
(($#)) || fail "name a job: ./spark-submit.sh [OPTIONS] jobs/mirror.py CONFIG"
[[ -e $1 || $1 == *://* ]] || fail "there is no job $1"

# --- the Spark and the Python that run ---
venv=${MIRROR_VENV-$home/.venv}
if [[ -n $venv && -x $venv/bin/python ]]; then
    python=$venv/bin/python
    # Without a pyspark of its own it goes with the Spark that the caller names.
    if found=$(first "$venv"/lib/python*/site-packages/pyspark); then SPARK_HOME=$found; fi
fi
python=${python:-${PYSPARK_DRIVER_PYTHON:-${PYSPARK_PYTHON:-python3}}}
command -v "$python" >/dev/null || fail "no Python called $python was found: set PYSPARK_PYTHON"
if [[ -z ${SPARK_HOME:-} ]] && submit=$(command -v spark-submit); then
    submit=$("$python" -c 'import os, sys; print(os.path.realpath(sys.argv[1]))' "$submit")
    SPARK_HOME=$(dirname "$(dirname "$submit")")
fi
if [[ -z ${SPARK_HOME:-} || ! -d ${SPARK_HOME:-}/jars ]]; then
    SPARK_HOME=$("$python" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))' 2>/dev/null) ||
        fail "no Spark was found: run \`make setup\`, set SPARK_HOME, or put spark-submit on the PATH"
fi
java=java
[[ -n ${JAVA_HOME:-} ]] && java=$JAVA_HOME/bin/java
command -v "$java" >/dev/null || fail "Java was not found: install Java 17, or set JAVA_HOME"

core=$(basename "$(first "$SPARK_HOME"/jars/spark-core_*.jar)" .jar) || fail "no Spark in $SPARK_HOME: it has no jars/spark-core"
[[ $core =~ ^spark-core_([0-9.]+)-([0-9]+\.[0-9]+\.[0-9]+) ]] || fail "cannot read Spark's version from $core.jar"
scala=${BASH_REMATCH[1]} spark=${BASH_REMATCH[2]}

# --- master: local[N] never tries a task again, so ask for four attempts ---
defaults=${properties_file:-${SPARK_CONF_DIR:-$SPARK_HOME/conf}/spark-defaults.conf}
set_by_default() { grep -qsE "^[[:space:]]*$1[[:space:]=]" "$defaults"; }
if [[ -z $master && -z ${MASTER:-} ]] && ! set_by_default 'spark\.master'; then
    master='local[*,4]'
fi

# --- Java's classes, kept by an earlier run or to be kept by this one ---
classes=${MIRROR_CLASSES-$home/.cache/spark-$spark-classes.jsa}
[[ $deploy_mode == client && -n $classes && (-n $keep_classes || -e $classes) ]] && kept=1 || kept=

# --- connector and Delta: the table of versions is mirror_lib's, the Scala is that of the Spark that runs ---
fetched=${MIRROR_JARS_DIR:-$home/.cache/spark-$spark-jars}
if [[ -d $fetched ]]; then
    found=$(printf '%s,' "$fetched"/*.jar)
    [[ $found != *'*'* ]] || fail "MIRROR_JARS_DIR=$fetched holds no jars"
    if [[ -n $kept && $master =~ ^local(\[|$) && -z $class_path ]] && ! set_by_default 'spark\.driver\.extraClassPath'; then
        # One JVM is all there is, and an archive holds only classes of its own class path.
        for jar in "$fetched"/*.jar; do
            artifact=${jar##*/} artifact=${artifact%-[0-9]*}
            # This path comes before Spark's own jars: what Spark brings stays Spark's.
            [[ -n $(first "$SPARK_HOME/jars/$artifact"-[0-9]*.jar) ]] || class_path+=${class_path:+:}$jar
        done
    else
        jars=${jars:+$jars,}${found%,} class_path=
    fi
elif [[ -n ${MIRROR_JARS_DIR:-} ]]; then
    fail "MIRROR_JARS_DIR=$MIRROR_JARS_DIR is not a folder"
else
    fitting=$(cd "$home" && "$python" -m mirror_lib.driver_java "$spark" 2>/dev/null) ||
        fail "no connector is known for Spark $spark in $SPARK_HOME: use 3.3 to 4.2, or name a folder of jars in MIRROR_JARS_DIR"
    packages=${packages:+$packages,}$(sed -E "s/_2\.1[23]:/_$scala:/g" <<<"$fitting")
    class_path=
fi

# --- mirror_lib, zipped where nobody else writes ---
scratch=$(mktemp -d "${TMPDIR:-/tmp}/mirror-submit-XXXXXX") || fail "no temporary folder can be made: is the disk full?"
trap 'rm -rf "$scratch"' EXIT
"$python" - "$home" "$scratch/mirror_lib.zip" <<'PYTHON' || fail "mirror_lib cannot be packed into $scratch: is the disk full?"
import importlib.machinery, importlib.util, marshal, pathlib, sys, zipfile
home, target = pathlib.Path(sys.argv[1]), sys.argv[2]
# PEP 552: compiled, and not to be compared with its source. A Python of another version passes over it.
head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
with zipfile.ZipFile(target, "w") as packed:
    for path in sorted((home / "mirror_lib").rglob("*")):
        name = str(path.relative_to(home))
        if path.is_file() and "__pycache__" not in path.parts:
            packed.write(path, name)
            if path.suffix == ".py":
                code = importlib.machinery.SourceFileLoader(name, str(path)).get_code(name)
                packed.writestr(name + "c", head + marshal.dumps(code))
PYTHON

command=("$SPARK_HOME/bin/spark-submit")
[[ -n $master ]] && command+=(--master "$master")
[[ -n $packages ]] && command+=(--packages "$packages")
[[ -n $jars ]] && command+=(--jars "$jars")
[[ -n $class_path ]] && command+=(--driver-class-path "$class_path")
command+=(
    --py-files "${py_files:+$py_files,}$scratch/mirror_lib.zip"
    --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension
    --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog
    --conf spark.sql.shuffle.partitions=4
    --conf spark.databricks.delta.snapshotPartitions=2
    --conf spark.databricks.delta.stats.skipping=false
    --conf spark.sql.maxPlanStringLength=10000
    --conf spark.kafka.consumer.cache.timeout=1s
    --conf spark.kafka.consumer.cache.evictorThreadRunInterval=1s
    --conf spark.kafka.consumer.fetchedData.cache.timeout=1s
    --conf spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval=1s
    --conf spark.speculation=false
    --conf spark.python.worker.reuse=true
    --conf "spark.ui.enabled=$([[ -n ${MIRROR_UI:-} ]] && echo true || echo false)"
    --conf 'spark.redaction.regex=(?i)secret|password|token|access[.]?key|keystore[.]key|private.?key|jaas|credential'
    --conf 'spark.sql.redaction.options.regex=(?i)url|secret|password|token|keystore[.]key|private.?key|jaas|credential'
    --conf spark.ui.showConsoleProgress=false
)
if [[ $deploy_mode == client ]]; then
    java_options="-Dlog4j2.configurationFile=file:$home/mirror_lib/log4j2.properties"
    # Java's second compiler is for what runs a hundred thousand times, such as a row's way through Spark, and otherwise
    # takes cores from brokers and workers for code that will not run long. Twenty times the defaults.
    java_options+=" -XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000"
    java_options+=" -XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000"
    # Rows come and go by the megabyte and leave nothing behind, so throughput counts. Java does not start with two.
    chosen="${JAVA_TOOL_OPTIONS:-} ${JDK_JAVA_OPTIONS:-} ${_JAVA_OPTIONS:-} ${SPARK_SUBMIT_OPTS:-} ${options[*]-}"
    chosen+=" $(grep -hsE '^[[:space:]]*spark\.driver\.defaultJavaOptions' "$defaults" || true)"
    chosen+=" $(grep -hsE '^[^#]*-XX:' "${SPARK_CONF_DIR:-$SPARK_HOME/conf}"/{spark-env.sh,java-opts} || true)"
    [[ $chosen =~ -XX:\+Use[[:alnum:]]+GC([^[:alnum:]]|$) ]] || java_options+=" -XX:+UseParallelGC"
    if [[ -n $keep_classes ]]; then
        java_options+=" -XX:ArchiveClassesAtExit=\"$classes.part\" -Xlog:cds=off -Xlog:cds+dynamic=off"
    elif [[ -n $classes && -e $classes ]]; then
        # Java checks whether it fits, and does without it where not. It would say so on standard output.
        java_options+=" -XX:SharedArchiveFile=\"$classes\" -Xshare:auto -Xlog:cds=off -Xlog:class+path=off"
    fi
    command+=(--driver-java-options "$java_options")
fi
command+=(${options[@]+"${options[@]}"} "$@")

if [[ -n $keep_classes ]]; then
    [[ $deploy_mode == client && -n $classes ]] || fail "--keep-classes needs --deploy-mode client, and a file in MIRROR_CLASSES"
    mkdir -p "$(dirname "$classes")" || fail "$(dirname "$classes") cannot be made: name another file in MIRROR_CLASSES"
fi
if [[ -n $dry_run ]]; then
    printf '%q ' "${command[@]}"
    echo
    exit 0
fi

export SPARK_HOME
export PYSPARK_DRIVER_PYTHON=$python
if [[ $master == local* ]]; then
    export PYSPARK_PYTHON=$python SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
fi

# --- run: the JVM is our child, the Python driver the JVM's; Spark's worker daemon is a child of the JVM too ---
signals=0
driver_of() { ps -A -o pid=,ppid=,args= | awk -v jvm="$1" '$2 == jvm && !/pyspark[.]daemon/ {print $1}'; }
forward() {
    signals=$((signals + 1))
    local drivers
    drivers=$(driver_of "$jvm")
    if ((signals > 1)); then
        kill -KILL $drivers "$jvm" 2>/dev/null || true
    else
        # Only the driver: a JVM that is told to stop takes the running tasks down with it.
        kill -TERM ${drivers:-"$jvm"} 2>/dev/null || true
    fi
}
"${command[@]}" &
jvm=$!
trap forward TERM INT HUP
while :; do
    before=$signals code=0
    wait "$jvm" || code=$?
    ((signals == before)) && break # else a signal ended the wait, not the job
done
if [[ -n $keep_classes ]]; then
    mv -f "$classes.part" "$classes" || fail "Java kept no classes: is there room for 200 MB beside $classes?"
    printf 'spark-submit.sh: classes kept in %s\n' "$classes" >&2
fi
exit "$code"

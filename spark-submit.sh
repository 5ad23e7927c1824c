#!/usr/bin/env bash
# Runs a job of this project on any Spark: ./spark-submit.sh [--dry-run] [SPARK-SUBMIT OPTIONS] jobs/mirror.py CONFIG ...
# It adds the Kafka connector and Delta that fit the Spark that runs, mirror_lib, and settings; your options win.
# The Spark is that of MIRROR_VENV, of SPARK_HOME, or of the spark-submit on the PATH. --archives FILE#env gives the
# executors ./env/bin/python. With --deploy-mode cluster, files named after the job are shipped and found by name.
#   MIRROR_JARS_DIR  a folder of jars to use instead of downloading them (closed networks)
#   MIRROR_VENV      the Python environment to use (default: .venv next to this file, if it is there; empty: none)
#   MIRROR_UI=1      start Spark's web page
#   MIRROR_CLASSES   an archive of Java classes for a quick start (default: .cache/spark-VERSION-classes.jsa next to this
#                    file, if it is there). --keep-classes makes it of what the job loads, which then ends a bit later
# SIGTERM and SIGINT reach the Python driver, which then ends cleanly; a second one kills it. On YARN in cluster mode they
# kill the application, which ends with 143. Exits as the job does.
set -euo pipefail
home=$(cd "$(dirname "$0")" && pwd)

fail() { printf 'spark-submit.sh: %s\n' "$*" >&2; exit 2; }
first() { [[ -e $1 ]] && printf '%s' "$1"; }

# --- the caller's options: lists are merged with ours, the rest is passed on as it is ---
dry_run= keep_classes= master= deploy_mode= packages= jars= py_files= properties_file= class_path= options=()
files= archives= chosen_python=
while (($#)) && [[ $1 == -* ]]; do
    case $1 in
        --dry-run) dry_run=1; shift; continue ;;
        --keep-classes) keep_classes=1; shift; continue ;;
        -h | --help) sed -n '2,12s/^# //p' "$0"; exit 0 ;;
        -v | --verbose | --version | --supervise) options+=("$1"); shift; continue ;;
        --*=*) name=${1%%=*} value=${1#*=}; shift ;;
        *) (($# > 1)) || fail "$1 needs a value"; name=$1 value=$2; shift 2 ;;
    esac
    case $name in
        --packages) packages=$value ;;
        --jars) jars=$value ;;
        --py-files) py_files=$value ;;
        --master) master=$value ;;
        --files) files=$value ;;
        --archives) archives=$value; options+=("$name" "$value") ;;
        --deploy-mode) deploy_mode=$value; options+=("$name" "$value") ;;
        --properties-file) properties_file=$value; options+=("$name" "$value") ;;
        *) [[ $value == spark.master=* ]] && master=${value#*=}
            [[ $value == spark.submit.deployMode=* ]] && deploy_mode=${value#*=}
            [[ $value == spark.archives=* ]] && archives=${value#*=}
            [[ $value =~ ^spark\.(pyspark(\.driver)?\.python|yarn\.appMasterEnv\.PYSPARK_(DRIVER_)?PYTHON)= ]] && chosen_python=1
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
java=java
[[ -n ${JAVA_HOME:-} ]] && java=$JAVA_HOME/bin/java
command -v "$java" >/dev/null || fail "Java was not found: install Java 17, or set JAVA_HOME"

spark= scala= conf_dir=${SPARK_CONF_DIR:-}
read_jars() { # an installation is named by its jars, which takes no time
    local core
    core=$(basename "$(first "$SPARK_HOME"/jars/spark-core_*.jar)" .jar)
    [[ $core =~ ^spark-core_([0-9.]+)-([0-9]+\.[0-9]+\.[0-9]+) ]] && scala=${BASH_REMATCH[1]} spark=${BASH_REMATCH[2]}
}
ask() { # a command that may be anybody's wrapper: it reports its version, its Scala, its class path
    local said
    said=$(SPARK_PRINT_LAUNCH_COMMAND=1 PYSPARK_DRIVER_PYTHON=$python "$1" --version 2>&1) || true
    [[ $said =~ version\ ([0-9]+\.[0-9]+\.[0-9]+) ]] && spark=${BASH_REMATCH[1]} || return 1
    [[ $said =~ Scala\ version\ ([0-9]+\.[0-9]+) ]] && scala=${BASH_REMATCH[1]} || return 1
    # Spark's settings come right before its jars there.
    if [[ $said =~ ([^:[:space:]]+):([^:[:space:]]+/slf4j-api[^:]*:)?([^:[:space:]]+)/jars/\* ]]; then
        conf_dir=${conf_dir:-${BASH_REMATCH[1]}} SPARK_HOME=${BASH_REMATCH[3]}
    fi
}
submit= SPARK_HOME=${SPARK_HOME:-}
if [[ -z $SPARK_HOME ]] && submit=$(command -v spark-submit); then
    ask "$submit" || submit=
fi
if [[ -z $spark ]]; then
    if [[ -z $SPARK_HOME ]]; then
        SPARK_HOME=$("$python" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))' 2>/dev/null) ||
            fail "no Spark was found: run \`make setup\`, set SPARK_HOME, or put a spark-submit on the PATH that answers --version"
    fi
    submit=$SPARK_HOME/bin/spark-submit
    read_jars || ask "$submit" || fail "no Spark in SPARK_HOME=$SPARK_HOME: it has no jars/spark-core, and bin/spark-submit --version names no version"
    export SPARK_HOME
fi

# --- master: local[N] never tries a task again, so ask for four attempts ---
defaults=${properties_file:-${conf_dir:=$SPARK_HOME/conf}/spark-defaults.conf}
set_by_default() { grep -qsE "^[[:space:]]*$1[[:space:]=]" "$defaults"; }
default_of() { sed -nE "s/^[[:space:]]*$1[[:space:]=]+([^[:space:]]+).*/\1/p" "$defaults" 2>/dev/null | tail -1 || true; }
if [[ -z $master && -z ${MASTER:-} ]] && ! set_by_default 'spark\.master'; then
    master='local[*,4]'
fi
runs_on=${master:-${MASTER:-$(default_of 'spark\.master')}}
deploy_mode=${deploy_mode:-$(default_of 'spark\.submit\.deployMode')}
deploy_mode=${deploy_mode:-client}
[[ $deploy_mode != cluster || $runs_on == yarn ]] ||
    fail "only YARN reports how a driver in cluster mode ended: use --deploy-mode client, or on Kubernetes a pod as in docs/deploy/kubernetes.md"

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
    fitting=$(cd "$home" && "$python" -m mirror_lib.spark.java "$spark" 2>/dev/null) ||
        fail "no connector is known for Spark $spark in $SPARK_HOME: use 3.3 to 4.2, or name a folder of jars in MIRROR_JARS_DIR"
    packages=${packages:+$packages,}$(sed -E "s/_2\.1[23]:/_$scala:/g" <<<"$fitting")
    class_path=
fi

# --- mirror_lib, zipped where no other user writes ---
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

# --- what a driver on another machine needs: files by their names, and a Python that is there ---
job=$1 arguments=("${@:2}")
if [[ $deploy_mode == cluster ]]; then
    for number in "${!arguments[@]}"; do
        file=${arguments[number]} option=
        if [[ ! -f $file && $file == -*=* ]]; then option=${file%%=*}= file=${file#*=}; fi
        [[ -f $file ]] || continue
        [[ ",$files," != *",$file,"* ]] || { arguments[number]=$option${file##*/} && continue; }
        [[ ",$files," != *"/${file##*/},"* && ",$files," != *",${file##*/},"* ]] || fail "two files are called ${file##*/}, and on the cluster they lie in one folder: rename one"
        files+=${files:+,}$file arguments[number]=$option${file##*/}
    done
    # Java looks for it before Spark has fetched anything; YARN brings it first.
    cp "$home/mirror_lib/log4j2.properties" "$scratch/mirror-log4j2.properties"
    files+=${files:+,}$scratch/mirror-log4j2.properties
fi
# The executors' Python: the caller's, else that of the first archive with a name, which each finds in its own folder.
workers_python=${PYSPARK_PYTHON:-}
[[ -n $workers_python || ! $archives =~ \#([^,/]+) ]] || workers_python=./${BASH_REMATCH[1]}/bin/python

command=("$submit")
[[ -n $master ]] && command+=(--master "$master")
[[ -n $packages ]] && command+=(--packages "$packages")
[[ -n $jars ]] && command+=(--jars "$jars")
[[ -n $files ]] && command+=(--files "$files")
[[ -n $class_path ]] && command+=(--driver-class-path "$class_path")
command+=(
    --py-files "${py_files:+$py_files,}$scratch/mirror_lib.zip"
    --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension
    --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog
    --conf spark.sql.shuffle.partitions=4
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
if [[ $deploy_mode == cluster ]]; then
    # A second attempt would run again what was refused. A scheduler, or the operator, starts what has failed.
    command+=(--conf spark.yarn.maxAppAttempts=1)
    # PySpark warns there of the submitter's path of mirror_lib.zip, which YARN has put on the Python path already.
    command+=(--conf 'spark.yarn.appMasterEnv.PYTHONWARNINGS=ignore:Failed to add file:RuntimeWarning')
    [[ -n $workers_python && -z $chosen_python ]] && command+=(--conf "spark.pyspark.python=$workers_python")
elif [[ $runs_on != local* && -z $chosen_python ]] && ! set_by_default 'spark\.pyspark\.(driver\.)?python'; then
    # Not by variables alone: EMR's spark-env.sh sets PYSPARK_PYTHON, whatever it was. Without an archive, this environment
    # is on the executors' machines too where they share a disk, or are this one.
    workers_python=${workers_python:-$python}
    command+=(--conf "spark.pyspark.python=$workers_python" --conf "spark.pyspark.driver.python=$python")
fi
java_options="-Dlog4j2.configurationFile=file:$home/mirror_lib/log4j2.properties"
[[ $deploy_mode == client ]] || java_options="-Dlog4j2.configurationFile=mirror-log4j2.properties"
# Java's second compiler is for what runs a hundred thousand times, such as a row's way through Spark, and otherwise
# takes cores from brokers and workers for code that will not run long. Twenty times the defaults.
java_options+=" -XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000"
java_options+=" -XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000"
# Rows come and go by the megabyte and leave nothing behind, so throughput counts. Java does not start with two.
chosen="${JAVA_TOOL_OPTIONS:-} ${JDK_JAVA_OPTIONS:-} ${_JAVA_OPTIONS:-} ${SPARK_SUBMIT_OPTS:-} ${options[*]-}"
chosen+=" $(grep -hsE '^[[:space:]]*spark\.driver\.defaultJavaOptions' "$defaults" || true)"
chosen+=" $(grep -hsE '^[^#]*-XX:' "$conf_dir"/{spark-env.sh,java-opts} || true)"
[[ $chosen =~ -XX:\+Use[[:alnum:]]+GC([^[:alnum:]]|$) ]] || java_options+=" -XX:+UseParallelGC"
if [[ -n $keep_classes ]]; then
    java_options+=" -XX:ArchiveClassesAtExit=\"$classes.part\" -Xlog:cds=off -Xlog:cds+dynamic=off"
elif [[ -n $kept ]]; then
    # Java checks whether it fits, and does without it where not. It would say so on standard output.
    java_options+=" -XX:SharedArchiveFile=\"$classes\" -Xshare:auto -Xlog:cds=off -Xlog:class+path=off"
fi
command+=(--driver-java-options "$java_options")
command+=(${options[@]+"${options[@]}"} "$job" ${arguments[@]+"${arguments[@]}"})

if [[ -n $keep_classes ]]; then
    [[ $deploy_mode == client && -n $classes ]] || fail "--keep-classes needs --deploy-mode client, and a file in MIRROR_CLASSES"
    mkdir -p "$(dirname "$classes")" || fail "$(dirname "$classes") cannot be made: name another file in MIRROR_CLASSES"
fi
if [[ -n $dry_run ]]; then
    printf '%q ' "${command[@]}"
    echo
    exit 0
fi

if [[ $deploy_mode == cluster ]]; then
    # Spark would hand this machine's paths to the driver elsewhere.
    unset PYSPARK_DRIVER_PYTHON PYSPARK_PYTHON
elif [[ $runs_on == local* ]]; then
    export PYSPARK_DRIVER_PYTHON=$python PYSPARK_PYTHON=$python SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
else
    export PYSPARK_DRIVER_PYTHON=$python PYSPARK_PYTHON=${workers_python:-$python}
fi

# --- run: the JVM is our child or a wrapper's, the Python driver the JVM's; Spark's worker daemon is its child too ---
signals=0
processes() { # driver|all: of the job that was started, the Python drivers, or each process
    # -ww: with COLUMNS in the environment, ps would cut the lines to that width.
    ps -A -ww -o pid=,ppid=,args= | awk -v root="$started" -v wanted="$1" '
        {parent[$1] = $2; line[$1] = $0}
        END {
            for (pid in parent) {
                for (each = pid; each != root && each in parent && each != parent[each]; ) each = parent[each]
                if (each != root) continue
                driver = line[parent[pid]] ~ /org[.]apache[.]spark[.]deploy[.]SparkSubmit/ && line[pid] !~ /pyspark[.]daemon/
                if (wanted == "all" || driver) print pid
            }
        }'
}
application() { grep -oshE 'application_[0-9]+_[0-9]+' "$scratch/client.log" | head -1 || true; } # empty before there is one
forward() {
    # No return in here: bash 5.2 ends the script where a trap's function returns while `wait` is interrupted.
    signals=$((signals + 1))
    local drivers
    if [[ $deploy_mode == cluster ]]; then
        drivers=$(application)
        if [[ -z $drivers ]]; then
            kill -TERM "$started" 2>/dev/null || true
        elif ! "$SPARK_HOME/bin/spark-class" org.apache.hadoop.yarn.client.cli.ApplicationCLI application -kill "$drivers" >&2; then
            printf 'spark-submit.sh: YARN did not end %s, which still runs: yarn application -kill %s\n' "$drivers" "$drivers" >&2
            kill -TERM "$started" 2>/dev/null || true
        fi
    elif ((signals > 1)); then
        kill -KILL $(processes all) 2>/dev/null || true
    else
        drivers=$(processes driver)
        # Only the driver: a JVM that gets SIGTERM takes the running tasks down with it.
        kill -TERM ${drivers:-"$started"} 2>/dev/null || true
    fi
}
if [[ $deploy_mode == cluster ]]; then
    # The client waits for the application, and its log has the name of it and how it ended.
    printf '%s\n' 'rootLogger.level = warn' 'rootLogger.appenderRef.console.ref = console' \
        'appender.console.type = Console' 'appender.console.name = console' 'appender.console.target = SYSTEM_ERR' \
        'appender.console.layout.type = PatternLayout' 'appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %m%n' \
        'logger.yarn.name = org.apache.hadoop.yarn.client.api.impl.YarnClientImpl' 'logger.yarn.level = info' \
        >"$scratch/log4j2.properties"
    export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -Dlog4j2.configurationFile=file:$scratch/log4j2.properties"
    mkfifo "$scratch/stderr"
    tee "$scratch/client.log" <"$scratch/stderr" >&2 &
    echo_of_client=$!
    "${command[@]}" 2>"$scratch/stderr" &
else
    "${command[@]}" &
fi
started=$!
trap forward TERM INT HUP
while :; do
    before=$signals code=0
    wait "$started" || code=$?
    ((signals == before)) && break # else a signal ended the wait, not the job
done
if [[ -n ${echo_of_client:-} ]]; then
    wait "$echo_of_client" || true
    # Spark's client ends with 1 whatever the job ended with.
    ended=$(sed -nE 's/.*User application exited with status ([0-9]+).*/\1/p' "$scratch/client.log" | tail -1)
    code=${ended:-$code}
    ((signals == 0)) || code=143
fi
if [[ -n $keep_classes ]]; then
    mv -f "$classes.part" "$classes" || fail "Java kept no classes: is there room for 200 MB next to $classes?"
    printf 'spark-submit.sh: classes kept in %s\n' "$classes" >&2
fi
exit "$code"

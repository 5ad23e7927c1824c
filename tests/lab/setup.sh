#!/usr/bin/env bash
# Makes the Python environment and fetches the jars of Spark's connector, Delta and Kafka into the checkout.
# In: SPARK (4.0, or one of the other lines below), PYTHON, VENV, IVY_SETTINGS (an Ivy settings file, for networks with a
# repository of their own), LOCK (`make lock`: writes the line's files in locks/ instead). Exits with 77 where the machine
# has no Python that the line needs.
# Quick when nothing is missing. Every failure ends with one sentence; the full output is in .cache/*.log.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 022

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
missing() { printf 'setup: %s\n' "$*" >&2; exit 77; }
say() { printf 'setup: %s (%d s)\n' "$1" "$((SECONDS - ${2:-0}))"; }

SPARK=${SPARK:-4.0}
KAFKA_VERSION=${KAFKA_VERSION:-4.3.1}
# A line of Spark: its versions, and the Pythons to build with, the best first. Spark before 4.0 knows neither NumPy 2 nor
# pandas 3. `floors` are the lower bounds of setup.py: 3.3 is the line that runs with them.
floors=('pyarrow==11.0.0' 'pandas==1.5.3' 'cramjam==2.8.0' 'google-crc32c==1.5.0' 'pyyaml==6.0' 'javaproperties==0.8.1'
    'aws-msk-iam-sasl-signer-python==1.0.2' 'prometheus-client==0.20.0' 'rich==13.9.4' 'deltalake==0.17.4'
    'jinja2==3.1.0' 'matplotlib==3.7.0')
case $SPARK in
    3.3) spark=3.3.1 delta=2.3.0 scala=2.12 pythons='3.8' extra=("${floors[@]}") ;;
    3.4) spark=3.4.4 delta=2.4.0 scala=2.12 pythons='3.10 3.9 3.11' extra=('numpy<2' 'pandas<2.3' 'pyarrow<18') ;;
    3.5) spark=3.5.7 delta=3.3.2 scala=2.12 pythons='3.11 3.10 3.9' extra=('numpy<2' 'pandas<2.3' 'pyarrow<18') ;;
    4.0) spark=4.0.0 delta=4.0.0 scala=2.13 pythons='3.11 3.12 3.10 3.13 3.9' extra=() ;;
    4.1) spark=4.1.1 delta=4.1.0 scala=2.13 pythons='3.12 3.11 3.13 3.10' extra=() suffix=_4.1 ;;
    4.2) spark=4.2.0 delta=4.4.0 scala=2.13 pythons='3.13 3.12 3.11' extra=() suffix=_4.2 ;;
    *) fail "SPARK=$SPARK is not a Spark line this project tests with: use 3.3, 3.4, 3.5, 4.0, 4.1 or 4.2" ;;
esac
# The linters run on the first line alone: mypy has no version for Python 3.8.
[[ $SPARK == 4.0 ]] && extras=spark,report,screen,test,dev,connect || extras=spark,report,screen,test
VENV=${VENV:-.venv}
kafka_jars=.cache/kafka-$KAFKA_VERSION
connect_jars=.cache/connect-$KAFKA_VERSION
kerby_jars=.cache/kerby-2.0.3
spark_jars=.cache/spark-$spark-jars
# The packages of the line with their hashes, for the first of its Pythons.
lock=locks/spark-$SPARK-python-${pythons%% *}.txt

usable() { # python, version it must have: it can make environments
    "$1" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$2')" 2>/dev/null
}

find_python() {
    local version candidate wanted="Spark $SPARK needs Python ${pythons// / or } with its venv module"
    for version in $pythons; do
        for candidate in ${PYTHON:-"python$version" python3 "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python}; do
            if usable "$candidate" "$version"; then printf '%s' "$candidate" && return; fi
        done
    done
    [[ -z ${PYTHON:-} ]] || fail "PYTHON=$PYTHON cannot be used: $wanted"
    missing "no Python ${pythons// / or } was found: $wanted; install one, or name one with PYTHON=/path/to/python3"
}

require_java() {
    local java=java version
    [[ -n ${JAVA_HOME:-} ]] && java=$JAVA_HOME/bin/java
    version=$("$java" -version 2>&1 | sed -nE '/version "/{s/.*version "(1\.)?([0-9]+).*/\2/p;q;}') || true
    [[ -n $version ]] || fail "Java was not found: install a Java 17 (or 21) runtime, or set JAVA_HOME"
    ((version >= 17)) || fail "Java $version is too old: Kafka and Spark need Java 17 or newer; install it, or set JAVA_HOME"
    JAVA=$java
}

require_disk() { # megabytes
    local free
    free=$(df -Pk . | awk 'NR == 2 {print int($4 / 1024)}')
    ((free >= $1)) || fail "the disk that holds $PWD has $free MB free, $1 MB are needed: make room"
}

explain() { # what, log: turn the end of a log into a sentence
    if grep -qiE 'no space left|disk quota' "$2"; then fail "$1 failed: the disk is full"; fi
    if grep -q 'DO NOT MATCH THE HASHES' "$2"; then
        fail "$1 failed: a downloaded package differs from its hash in $lock; nothing of it was installed (log: $2)"
    fi
    if grep -qiE 'name resolution|resolve host|UnknownHost|NewConnectionError|ConnectTimeout|timed out|Network is unreachable|Connection refused|ConnectException|No matching distribution|ProxyError|unresolved dependenc' "$2"; then
        fail "$1 failed: packages could not be downloaded; check the network, proxy or mirror settings (log: $2)"
    fi
    fail "$1 failed (log: $2)"
}

pip_install() { # what, log, pip's words
    "$VENV/bin/python" -m pip install -q "${@:3}" >"$2" 2>&1 || explain "$1" "$2"
}

locked() { # the environment has the Python that the lock is for
    [[ -f $lock && $("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') == "${pythons%% *}" ]]
}

install_locked() { # log, regular expression of names, pip's words
    awk -v names="^($2)==" '/^[^ #]/ {wanted = $0 ~ names} wanted' "$lock" >"$1.txt"
    pip_install "installing Python packages" "$1" --require-hashes --no-build-isolation -r "$1.txt" "${@:3}"
}

install_spark() {
    [[ -x $VENV/bin/python ]] || "$PYTHON" -m venv "$VENV" >.cache/venv.log 2>&1 || explain "making $VENV" .cache/venv.log
    # Spark first: the jar resolver it carries then works alongside the rest of pip's downloads.
    if locked; then
        # PySpark has no wheel. The tools that build it come from the lock too.
        install_locked .cache/pip-tools.log 'pip|setuptools'
        install_locked .cache/pip-spark.log 'py4j|pyspark'
    else
        say "$lock is for another Python, so packages are installed without hashes, as new as setup.py allows" "$started"
        pip_install "installing pyspark $spark" .cache/pip-spark.log "pyspark==$spark"
    fi
}

install_rest() {
    if locked; then
        install_locked .cache/pip-rest.log '.*' --only-binary :all:
        # Nothing is left to download: this fails where the lock lacks a package that setup.py names.
        "$VENV/bin/python" -m pip install -q --no-index --no-build-isolation -e ".[$extras]" >.cache/pip.log 2>&1 ||
            fail "$lock does not fit setup.py: run \`make lock\` (log: .cache/pip.log)"
    else
        pip_install "installing Python packages" .cache/pip.log -e ".[$extras]" "pyspark==$spark" "delta-spark==$delta" \
            ${extra[@]+"${extra[@]}"}
    fi
    say "Python packages in $VENV" "$started"
}

write_lock() { # file, uv's words; requirements on standard input
    .venv-tools/bin/uv pip compile -q --upgrade --generate-hashes --no-annotate --no-emit-index-url \
        --custom-compile-command 'make lock' "${@:2}" - -o "$1" || fail "$1 could not be written"
}

write_locks() {
    local line=(--python-version "${pythons%% *}" --python-platform linux setup.py)
    # shellcheck disable=SC2086
    printf '%s\n' pip setuptools "pyspark==$spark" "delta-spark==$delta" ${extra[@]+"${extra[@]}"} |
        write_lock "$lock" "${line[@]}" --extra ${extras//,/ --extra }
    [[ $SPARK == 4.0 ]] || return 0
    write_lock locks/runtime.txt "${line[@]}" -c "$lock" --extra spark --extra msk-iam --extra metrics --extra screen \
        --extra report </dev/null
    printf '%s\n' uv pip-audit cyclonedx-bom | write_lock locks/tools.txt --universal --python-version 3.10
}

sums() { # folder
    (cd "$1" && LC_ALL=C && if command -v sha256sum >/dev/null; then sha256sum -- *.jar; else shasum -a 256 -- *.jar; fi)
}

checked() { # folder: it has the jars of its list in locks/, and no others. Another KAFKA_VERSION has no list.
    local list=locks/${1##*/}
    list=${list%.part}.sha256
    [[ -d $1 && (! -f $list || -z $(sums "$1" | diff - "$list")) ]]
}

dependency() { # organisation, module, revision, attributes
    printf '    <dependency org="%s" name="%s" rev="%s" conf="default->default" %s/>\n' "$1" "$2" "$3" "${4:-}"
}

fetch_jars() { # folder; dependencies on standard input
    local folder=$1 name log ivy
    name=$(basename "$folder") log=$folder.log
    ivy=$(ls "$VENV"/lib/python*/site-packages/pyspark/jars/ivy-2*.jar)
    rm -rf "$folder.part"
    {
        printf '<ivy-module version="2.0">\n  <info organisation="mirror" module="%s"/>\n' "$name"
        printf '  <configurations><conf name="default"/></configurations>\n  <dependencies>\n'
        cat
        printf '  </dependencies>\n</ivy-module>\n'
    } >"$folder.xml"
    # A cache for each folder: Ivy does not lock its cache, and two of these run side by side.
    "$JAVA" -jar "$ivy" ${IVY_SETTINGS:+-settings "$IVY_SETTINGS"} -cache ".cache/ivy/$name" -ivy "$folder.xml" \
        -confs default -retrieve "$folder.part/[artifact]-[revision](-[classifier]).[ext]" >"$log" 2>&1 ||
        explain "fetching $name" "$log"
    [[ -z ${LOCK:-} ]] || sums "$folder.part" >"locks/$name.sha256"
    checked "$folder.part" || fail "the jars that were fetched to $folder.part differ from locks/$name.sha256, and are not used: remove .cache/ivy/$name and try again"
    rm -rf "$folder" "$folder.jsa" # the archive is of the old jars
    mv "$folder.part" "$folder"
    say "jars in $folder" "$started"
}

fetch_kafka() {
    { # Some of them alone: the runtime of Connect is not wanted here.
        dependency org.apache.kafka kafka_2.13 "$KAFKA_VERSION"
        dependency org.apache.kafka kafka-tools "$KAFKA_VERSION" 'transitive="false"'
        # MirrorMaker's client and the formatters of its topics, which read what this product has written.
        dependency org.apache.kafka connect-mirror-client "$KAFKA_VERSION" 'transitive="false"'
        dependency org.apache.kafka connect-mirror "$KAFKA_VERSION" 'transitive="false"'
        dependency org.apache.logging.log4j log4j-slf4j-impl 2.25.4
    } | fetch_jars "$kafka_jars"
}

fetch_connect() {
    { # A folder of its own, since the brokers' class archive is of exactly their jars.
        dependency org.apache.kafka connect-mirror "$KAFKA_VERSION"
        dependency org.apache.logging.log4j log4j-slf4j-impl 2.25.4
    } | fetch_jars "$connect_jars"
}

fetch_kerby() { # a Kerberos server that needs nothing but Java
    dependency org.apache.kerby kerb-simplekdc 2.0.3 | fetch_jars "$kerby_jars"
}

delta_artifact() { # delta-core until 2.4; since 4.1 an artifact for each line of Spark
    if [[ $delta == 2.* ]]; then printf 'delta-core_%s' "$scala"; else printf 'delta-spark%s_%s' "${suffix:-}" "$scala"; fi
}

fetch_spark() {
    local without='org.scala-lang org.slf4j org.apache.hadoop' # Spark has them
    {
        dependency org.apache.spark "spark-sql-kafka-0-10_$scala" "$spark"
        dependency io.delta "$(delta_artifact)" "$delta"
        # Spark 4.0 asks for a Kafka client and an LZ4 with known vulnerabilities: SECURITY.md.
        if [[ $SPARK == 4.0 ]]; then
            dependency at.yawk.lz4 lz4-java 1.14.0
            without+=' org.lz4'
        fi
        # shellcheck disable=SC2086
        printf '    <exclude org="%s"/>\n' $without
        [[ $SPARK != 4.0 ]] || printf '    <override org="org.apache.kafka" module="kafka-clients" rev="3.9.2"/>\n'
    } | fetch_jars "$spark_jars"
}

mkdir -p .cache || fail "$PWD cannot be written to"
require_java
ready=$VENV/.ready
if [[ -n ${LOCK:-} ]]; then
    write_locks
    started=$SECONDS VENV=.venv
    fetch_spark
    if [[ $SPARK == 4.0 ]]; then fetch_kafka && fetch_connect && fetch_kerby; fi
    exit
fi
stamp="$spark $delta $(cat setup.py "$lock" 2>/dev/null | cksum)"
missing_jars=()
for folder in "$kafka_jars" "$connect_jars" "$kerby_jars" "$spark_jars"; do
    checked "$folder" || missing_jars+=("$folder")
done
if [[ -z ${missing_jars[*]-} && -e $ready && $(<"$ready") == "$stamp" ]]; then exit 0; fi

if [[ -e $ready ]]; then require_disk 200; else require_disk 2500; fi
started=$SECONDS
echo "setup: the Python environment and jars are fetched, 1.2 GB: this takes minutes" >&2
PYTHON=$(find_python) || exit
if [[ ! -e $ready || $(<"$ready") != "$stamp" ]]; then
    rm -f "$ready"
    install_spark
    say "pyspark $spark in $VENV" "$started"
    install_rest & pip=$!
fi
for folder in ${missing_jars[@]+"${missing_jars[@]}"}; do
    [[ ! -d $folder ]] || say "the jars in $folder differ from locks/$(basename "$folder").sha256, and are fetched again" "$started"
    case $folder in
        "$kafka_jars") fetch_kafka & ;;
        "$connect_jars") fetch_connect & ;;
        "$kerby_jars") fetch_kerby & ;;
        "$spark_jars") fetch_spark & jars=1 ;;
    esac
    jobs+=($!)
done
status=0
for job in ${pip:-} ${jobs[@]+"${jobs[@]}"}; do wait "$job" || status=1; done
((status == 0)) || exit 1
# They are of the jars that were there before.
[[ -z ${pip:-}${jars:-} ]] || rm -f ".cache/spark-$spark.jsa" ".cache/spark-$spark-classes.jsa"
echo "setup: Java is run once to keep the classes that it loads, for quick starts: this takes a minute or two"
# Everything works without them, so a Java that cannot make them is no failure.
if ! "$VENV/bin/python" -m tests.lab.class_archives >.cache/jvm.log 2>&1; then
    say "no class archives could be made, Java will start slower (log: .cache/jvm.log)" "$started"
fi
printf '%s' "$stamp" >"$ready"
say "environment and jars are ready" "$started"

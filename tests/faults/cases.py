"""The faults: each acts on a scene while records flow. A new case is one `case` here, and its row in
`docs/project/guarantees.md` comes from the next run of `make faults`."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping

from tests.faults.cluster import HEALTHY, Cluster, Trouble, wait_for
from tests.faults.engines import Mirror
from tests.faults.scene import Act, Case, Scene, Strike
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import ROOT
from tests.lab.processes import send
from tests.lab.small_disk import SmallDisk
from tests.lab.submitted import SMALL

# After so long the ledger has the copied records, on a busy machine too.
LEDGER_SECONDS = 40.0
REST_SECONDS = 5.0
TWO_EXECUTORS = ("--master", "local-cluster[2,1,1024]", *SMALL)
CLOCK_SITE = ROOT / "tests" / "faults" / "clock_site"


CASES: Dict[str, Case] = {}


def case(title: str, name: str = "", **facts: Any) -> Callable[[Act], Act]:
    """Put the function on the list under this name, or its own."""

    def put(act: Act) -> Act:
        known = name or act.__name__.replace("_", "-")
        CASES[known] = Case(known, title, act, **facts)
        return act

    return put


# Processes of the replicator.


@case("no fault")
def no_fault(scene: Scene) -> None:
    for _ in range(3):
        scene.strike("nothing")


def again_and_again(what: str, end: Callable[[Scene], object]) -> Act:
    """Each process that is ended so is followed by another one, three times."""

    def act(scene: Scene) -> None:
        for _ in range(3):
            scene.strike(what)
            scene.sleep(0, 2)
            end(scene)
            scene.engine.start()
        scene.healed()

    return act


def terminated(scene: Scene) -> None:
    scene.engine.kill_all(signal.SIGTERM)
    wait_for(lambda: not scene.engine.running, "its end after SIGTERM", 90)


killed = again_and_again("kill -9 of the leading process", lambda scene: scene.engine.kill())
case("process, 3 kills (`kill -9`)", "process-killed", quick=True)(killed)
case("every process, 3 kills", "machine-lost")(
    again_and_again("kill -9 of every process", lambda scene: scene.engine.kill_all())
)
case("every process, 3 SIGTERM", "terminated")(again_and_again("SIGTERM to every process", terminated))


def workers(scene: Scene) -> List[int]:
    return replicator(scene).workers()


def an_executor(scene: Scene) -> List[int]:
    return [scene.random.choice(replicator(scene).executors())]


def killed_thrice(what: str, processes: Callable[[Scene], List[int]]) -> Act:
    def act(scene: Scene) -> None:
        for _ in range(3):
            scene.strike(f"kill -9 of {what}")
            scene.sleep(0, 2)
            send(processes(scene), signal.SIGKILL)
            scene.flowing()

    return act


def frozen_twice(what: str, processes: Callable[[Scene], List[int]]) -> Act:
    def act(scene: Scene) -> None:
        for _ in range(2):
            scene.strike(f"SIGSTOP of {what}")
            frozen = processes(scene)
            send(frozen, signal.SIGSTOP)
            time.sleep(20)
            send(frozen, signal.SIGCONT)

    return act


case("Python workers killed", "workers-killed", mm2=False)(killed_thrice("the Python workers", workers))
case("executor killed", "executors-killed", mm2=False, spark_options=TWO_EXECUTORS)(
    killed_thrice("an executor", an_executor)
)
case("executor frozen, 20 s", "executors-frozen", mm2=False, spark_options=TWO_EXECUTORS)(
    frozen_twice("an executor", an_executor)
)


def succeeded(scene: Scene) -> None:
    """A process is frozen, and thawed when another one copies."""
    scene.strike("SIGSTOP of every process, a successor")
    scene.sleep(0, 2)
    scene.engine.freeze()
    scene.still()
    scene.engine.start()
    scene.flowing()
    scene.engine.thaw(-2)


@case("frozen while a successor copies (zombie)", quick=True, fences_itself=True)
def zombie(scene: Scene) -> None:
    for _ in range(2):
        succeeded(scene)
        time.sleep(10)
        scene.flowing()


case("Python workers frozen, 20 s", "workers-frozen", mm2=False)(frozen_twice("the Python workers", workers))


@case("started twice at once")
def started_twice(scene: Scene) -> None:
    scene.engine.start()
    scene.strike("two at once")
    for _ in range(2):
        scene.engine.start()
        scene.engine.start()
        scene.strike("two more at once")
        time.sleep(10)
    # Those that lost a moment ago are still ending; a SIGTERM at that moment says nothing about the copy. Two that open
    # their lanes at the same moment may fence each other, each in another lane: then none is left, and one is started.
    wait_for(lambda: scene.engine.running <= 1, "that at most one of five is left", 180)
    time.sleep(15)
    if not scene.engine.running:
        scene.engine.start()


# Brokers.


def back_in(cluster: Cluster, broker: KafkaBroker, *topics: str) -> None:
    broker.restart()
    wait_for(lambda: cluster.whole(*topics), f"replicas of {broker.name} in sync", 90)


def killed_in_turn(scene: Scene, side: str, clean: bool = False) -> None:
    cluster, topic = (scene.target, scene.engine.remote_topic) if side == "target" else (scene.source, scene.load.topic)
    for broker in cluster.brokers:
        scene.strike(f"{'SIGTERM' if clean else 'kill -9'} of {broker.name}")
        scene.sleep(0, 2)
        if clean:
            broker.stop()
        else:
            broker.kill()
        scene.sleep(1, 4)
        back_in(cluster, broker, topic)
    scene.healed()


case("target brokers killed in turn", "target-brokers-killed")(lambda scene: killed_in_turn(scene, "target"))
case("target brokers restarted in turn", "target-brokers-restarted")(
    lambda scene: killed_in_turn(scene, "target", clean=True)
)
case("source brokers killed in turn", "source-brokers-killed")(lambda scene: killed_in_turn(scene, "source"))


@case("active controllers killed")
def controllers_killed(scene: Scene) -> None:
    for cluster, topic in ((scene.target, scene.engine.remote_topic), (scene.source, scene.load.topic)):
        broker = cluster.controller()
        scene.strike(f"kill -9 of {broker.name}, the controller")
        broker.kill()
        scene.sleep(1, 4)
        back_in(cluster, broker, topic)


@case("target broker frozen, 15 s")
def target_broker_frozen(scene: Scene) -> None:
    for broker in scene.target.brokers[:2]:
        scene.strike(f"SIGSTOP of {broker.name}")
        broker.pause()
        time.sleep(15)
        broker.resume()
        wait_for(lambda: scene.target.whole(scene.engine.remote_topic), "all replicas in sync", 90)


@case("two target brokers frozen, 20 s")
def too_few_in_sync(scene: Scene) -> None:
    scene.strike("SIGSTOP of two target brokers")
    for broker in scene.target.brokers[1:]:
        broker.pause()
    time.sleep(20)
    for broker in scene.target.brokers[1:]:
        broker.resume()


# Lines.


@contextmanager
def trouble(cluster: Cluster, wanted: Trouble) -> Iterator[None]:
    before = sum(cluster.happened().values())
    cluster.trouble(wanted)
    try:
        yield
    finally:
        cluster.trouble(HEALTHY)
    assert sum(cluster.happened().values()) > before, f"the lines to {cluster.name} met no trouble"


def on_lines(what: str, wanted: Trouble, *sides: str) -> Act:
    """Half a minute of trouble on the lines to these clusters."""

    def act(scene: Scene) -> None:
        scene.strike(what)
        with ExitStack() as stack:
            for side in sides:
                stack.enter_context(trouble(getattr(scene, side), wanted))
            time.sleep(30)

    return act


HOLE = Trouble(hole_to_broker=True, hole_to_client=True)
case("connections cut at random bytes", "lines-cut")(
    on_lines("2 frames of 100 cut", Trouble(cut=0.02), "source", "target")
)
case("target responses lost", "answers-lost")(on_lines("5 answers of 100 lost", Trouble(lose_answer=0.05), "target"))


@case("target requests 8 s late", fences_itself=True)
def requests_late(scene: Scene) -> None:
    scene.strike("5 requests of 100 late")
    with trouble(scene.target, Trouble(hold_request=0.05, hold_seconds=8)):
        time.sleep(30)
    time.sleep(8)


@case("target requests late, kill", fences_itself=True)
def requests_late_of_the_dead(scene: Scene) -> None:
    with trouble(scene.target, Trouble(hold_request=0.03, hold_seconds=20)):
        for _ in range(2):
            scene.strike("3 requests of 100 late; kill -9")
            scene.sleep(2, 4)
            scene.engine.kill_all()
            scene.engine.start()
            scene.flowing()
    time.sleep(20)


case("source black hole", "black-hole-source")(on_lines("black hole, both directions", HOLE, "source"))
case("target black hole", "black-hole-target")(on_lines("black hole, both directions", HOLE, "target"))
case("target black hole, responses only", "one-way-hole")(
    on_lines("black hole towards the client", Trouble(hole_to_client=True), "target")
)
case("every frame 100 ms late", "slow-lines")(
    on_lines("100 ms each way", Trouble(delay_seconds=0.1), "source", "target")
)


# Transactions on the source.


case("transactional source, 3 kills", "transactions", transactional=True)(killed)


@case("source transaction open, 20 s", transactional=True)
def transaction_left_open(scene: Scene) -> None:
    scene.strike("a transaction is left open")
    producer = scene.source.producer(transactional_id=f"open {scene.load.topic}")
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(scene.load.partitions):
        producer.produce(scene.load.topic, value=b"of an open transaction", partition=partition)
    producer.flush(60)
    time.sleep(20)
    producer.abort_transaction(60)
    scene.flowing()


# Topics.


@case("DeleteRecords 40 s after the copy, kill", cleaned=True)
def records_deleted(scene: Scene) -> None:
    for _ in range(2):
        scene.strike("DeleteRecords behind the copy")
        # What a reader of the target has seen of each partition; all before it was seen too.
        copied = Counter(partition for partition, _ in set(scene.follower.seen))
        time.sleep(LEDGER_SECONDS)
        scene.source.expire(scene.load.topic, {partition: count // 2 for partition, count in copied.items()})
        scene.engine.kill()
        scene.engine.start()
    scene.flowing()


case(
    "compacted source, 3 kills",
    "compacted",
    cleaned=True,
    topic={
        "cleanup.policy": "compact",
        "segment.ms": "3000",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "3000",
    },
)(killed)


@case("partitions added, kill")
def partitions_added(scene: Scene) -> None:
    scene.strike("three partitions more")
    more = scene.load.partitions + 3
    scene.source.grow(scene.load.topic, more)
    scene.load.partitions = more
    wait_for(lambda: len(scene.load.next_numbers()) == more, "records in the new partitions")
    scene.sleep(0, 3)
    scene.engine.kill()
    scene.engine.start()
    scene.flowing()


@case(
    "source loses copied records (unclean election)",
    topic={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    replicas=(1, 2),
    acks="1",
    cleaned=True,
)
def source_truncated(scene: Scene) -> None:
    follower_killed(scene, scene.source, scene.load.topic)
    scene.flowing()
    scene.load.stop()
    wait_for(lambda: scene.load.acked <= scene.follower.seen, "all of it on the target", 90)
    first = scene.source.brokers[0].name
    scene.strikes.append(Strike(f"kill -9 of {first}", len(scene.load.acked), len(scene.follower.seen)))
    follower_elected(scene.source, scene.load.topic)
    scene.load.begin()
    stopped_instead(scene)


@case(
    "target loses copied records (unclean election)",
    remote={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    remote_replicas=(1, 2),
)
def target_truncated(scene: Scene) -> None:
    topic = scene.engine.remote_topic
    follower_killed(scene, scene.target, topic)
    scene.strike(f"kill -9 of {scene.target.brokers[0].name}")
    follower_elected(scene.target, topic)
    if not scene.engine.running:  # exit code 3, and the next start copies the lost records again
        scene.engine.start()
    scene.flowing()
    acked = set(scene.load.acked)
    wait_for(lambda: not isinstance(scene.engine, Mirror) or acked <= scene.on_target(), "what was lost, again", 120)


def follower_killed(scene: Scene, cluster: Cluster, topic: str) -> None:
    """Of a topic on the first two nodes the first one alone is in sync from here on."""
    second = cluster.brokers[1]
    scene.strike(f"kill -9 of {second.name}, a follower")
    second.kill()
    wait_for(lambda: set(cluster.leaders(topic).values()) == {1}, "one leader", 90)


def follower_elected(cluster: Cluster, topic: str) -> None:
    first, second = cluster.brokers[:2]
    first.kill()
    second.start(wait=False)
    wait_for(lambda: set(cluster.leaders(topic).values()) == {2}, "the follower as leader", 90)
    first.restart()


@case("source topic re-created", cleaned=True)
def topic_recreated(scene: Scene) -> None:
    scene.strike("deleted, and created again")
    scene.load.stop()
    wait_for(lambda: scene.load.acked <= scene.follower.seen, "all of it on the target", 90)
    scene.source.delete_topic(scene.load.topic)
    scene.source.create_topic(scene.load.topic, scene.load.partitions)
    scene.load.begin()
    stopped_instead(scene)


def stopped_instead(scene: Scene) -> None:
    """This mirror must copy nothing more: its exit code says so, and its log names the topic."""
    if not isinstance(scene.engine, Mirror):
        return
    seen = len(scene.follower.seen)
    time.sleep(20)
    code = scene.engine.stop()
    log = scene.engine.log.read_text(errors="replace")
    assert code not in (0, None), scene.tail_of_log()
    assert f"{scene.load.partitions} partitions stopped; the first: {scene.load.topic}" in log, scene.tail_of_log()
    assert len(scene.follower.seen) == seen
    scene.refusal = f"exit code {code}"


# Flows that change records.


case("`where`, 3 kills", "where-killed", mm2=False, flow="where")(killed)
case("`where`, zombie", "where-zombie", mm2=False, flow="where", fences_itself=True)(zombie)
case("repartitioning by key, 3 kills", "keyed-killed", mm2=False, flow="keyed")(killed)
case("repartitioning by key, zombie", "keyed-zombie", mm2=False, flow="keyed", fences_itself=True)(zombie)


# State.


def disk_away(what: str, begin: Callable[[SmallDisk], None], end: Callable[[SmallDisk], None]) -> Act:
    def act(scene: Scene) -> None:
        disk = replicator(scene).disk
        assert disk is not None
        scene.strike(what)
        begin(disk)
        time.sleep(20)
        end(disk)
        if not scene.engine.running:
            scene.engine.start()
        scene.flowing()

    return act


case("state disk full, 20 s", "state-disk-full", mm2=False, small_disk=True)(
    disk_away("the disk is full", SmallDisk.fill, SmallDisk.make_room)
)
case("state read-only, 20 s", "state-read-only", mm2=False, small_disk=True)(
    disk_away("the disk is read-only", lambda disk: disk.read_only(True), lambda disk: disk.read_only(False))
)


@case("state removed, kill", mm2=False)
def state_removed(scene: Scene) -> None:
    scene.strike("the state folder is removed")
    shutil.rmtree(replicator(scene).state_folder, ignore_errors=True)
    scene.sleep(3, 6)
    scene.engine.kill_all()
    shutil.rmtree(replicator(scene).state_folder, ignore_errors=True)
    scene.engine.start()
    scene.flowing()


case(
    "clock wrong by an hour, 3 kills",
    "clock-jumps",
    mm2=False,
    environment={"PYTHONPATH": f"{CLOCK_SITE}{os.pathsep}{ROOT}", "LAB_CLOCK": "3600 jumps"},
)(killed)


# Consumer groups.


@case("group offsets, copy killed", group=True)
def groups_copy_killed(scene: Scene) -> None:
    followed(scene)
    killed(scene)
    followed(scene)


@case("group offsets, translation killed", mm2=False, group=True)
def groups_translation_killed(scene: Scene) -> None:
    for _ in range(3):
        followed(scene)
        scene.strike("kill -9 of the second job")
        scene.sleep(0, 2)
        translation = replicator(scene).started[-1]
        translation.kill()
        replicator(scene).start_translation()
    followed(scene)


@case("group offsets, target brokers killed", group=True)
def groups_target_brokers_killed(scene: Scene) -> None:
    followed(scene)
    killed_in_turn(scene, "target")
    followed(scene)


def followed(scene: Scene) -> None:
    """Return when the group's offsets on the target move."""
    group, engine = scene.group, scene.engine
    assert group is not None
    if isinstance(engine, Mirror) and len(engine.started) == len(engine.processes):
        engine.start_translation()

    def furthest() -> int:
        return sum({each.partition: each.remote_offset for each in group.samples}.values())

    before = furthest()
    wait_for(lambda: furthest() > before, "a group's offset on the target", 120)


# The controls: a mirror without one of its guards, under the same faults, must be found out by the same judge.


def woken_unfenced(scene: Scene) -> None:
    """What a zombie has on its way is written next to its successor's records. Both notice it, and stop."""
    succeeded(scene)
    time.sleep(15)
    scene.refusal = "both stop"


def killed_often(scene: Scene) -> None:
    """A kill between two micro-batches leaves nothing to be copied twice, so a few kills may prove nothing."""
    for _ in range(4):
        killed(scene)


CONTROLS = (
    Case("control-no-fence", "no fence", woken_unfenced, flow="no fence"),
    Case("control-no-origins", "no origins", killed_often, flow="no origins"),
)


# Random faults, in turn and for hours.


def soak(scene: Scene) -> None:
    """Cases that need nothing set up, for HOURS; the seed decides which, in which order."""
    end = time.monotonic() + float(os.environ.get("HOURS") or 1) * 3600
    plain = [
        each
        for each in CASES.values()
        if each == Case(each.name, each.title, each.act, each.mm2, each.quick, fences_itself=each.fences_itself)
    ]
    while time.monotonic() < end:
        chosen = scene.random.choice(plain)
        written, seen = len(scene.load.acked), len(scene.follower.seen)
        print(f"{time.strftime('%H:%M:%S')} {chosen.name} · {written} written, {seen} seen", flush=True)
        chosen.act(scene)
        scene.heal()
        time.sleep(REST_SECONDS)
    scene.healed()


SOAK = Case("soak", "random faults", soak, per_second=400, fences_itself=True)


# The reach of a run.


def replicator(scene: Scene) -> Mirror:
    """Of a case that is this mirror's alone."""
    assert isinstance(scene.engine, Mirror)
    return scene.engine


def chosen(names: List[str]) -> Mapping[str, Case]:
    """The named cases, or all but the soak."""
    return {name: {**CASES, SOAK.name: SOAK}[name] for name in names or CASES}

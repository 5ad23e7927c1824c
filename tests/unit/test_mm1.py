"""MirrorMaker 1's command line and client files: what they come to, and what is said of options without meaning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List

import pytest

from mirror_lib.config.mm1_reader import IGNORED, OPTIONS
from mirror_lib.config.model import REFUSE, MirrorConfig
from mirror_lib.config.values import OffsetChoice
from mirror_lib.errors import ConfigError
from mirror_lib.facts import TopicDescription
from mirror_lib.topics.plan import select_topics
from tests.lab.flow_lab import config_of


def files(folder: Path, **contents: str) -> Dict[str, str]:
    """`c` and `p` are the two client files, with more lines where they are given."""
    texts = {"c": "bootstrap.servers=a:1\ngroup.id=g\n", "p": "bootstrap.servers=b:1\n"}
    for name, more in contents.items():
        texts[name] = more if name not in texts else texts[name] + more
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in texts}


def read(folder: Path, *options: str, **contents: str) -> MirrorConfig:
    paths = files(folder, **contents)
    return config_of("--consumer.config", paths["c"], "--producer.config", paths["p"], *options)


def reported(config: MirrorConfig) -> str:
    return "\n".join(config.warnings)


NAMES = ["__debezium-heartbeat.shop", "a.checkpoints.internal", "a.replica", "device.heartbeats", "heartbeats",
         "mm2-x.internal", "orders", "pay.x"]  # fmt: skip
KAFKAS = ("__consumer_offsets", "__transaction_state")


@pytest.mark.parametrize(
    ("option", "topics"),
    [
        ("--include=.*", NAMES),
        ("--blacklist=orders,pay.*", NAMES[:-2]),
        ("--whitelist=orders, pay.x", NAMES[-2:]),
        ('--whitelist="orders,pay.x"', NAMES[-2:]),
        ("--whitelist='pay.*'", NAMES[-1:]),
        ("--whitelist=orders|heart.*", ["heartbeats", "orders"]),
    ],
)
def test_selected_topics_keep_their_names_and_kafkas_own_are_excluded(
    tmp_path: Path, option: str, topics: List[str]
) -> None:
    config = read(tmp_path, option, "--num.streams", "4")
    (flow,) = config.flows
    found = {name: TopicDescription(name, "", 1, name in KAFKAS) for name in (*NAMES, *KAFKAS)}
    selected, _ = select_topics(flow, found, config.flows)
    assert selected == {name: name for name in topics}
    assert (flow.name, flow.tasks_max, flow.replication_factor) == ("source->target", 4, -1)
    assert flow.counts_differ == REFUSE and not flow.repartitions
    assert (config.name, config.trigger, config.state) == ("mm1-g", "10 seconds", "./mirror-state")


def test_flow_starts_from_the_group_and_commits_to_it(tmp_path: Path) -> None:
    config = read(tmp_path, "--whitelist", "a", "--offset.commit.interval.ms", "1500")
    (flow,) = config.flows
    assert flow.start_position == OffsetChoice(group="g")
    assert (flow.commit_source_group, flow.commit_source_group_interval) == ("g", 1.5)
    assert flow.auto_offset_reset == "latest" and "begins at its end" in reported(config)
    smallest = read(tmp_path, "--whitelist", "a", c="auto.offset.reset=smallest\n")
    assert smallest.flows[0].auto_offset_reset == "earliest" and "begins at its end" not in reported(smallest)


def test_several_sources_are_several_flows_into_one_target(tmp_path: Path) -> None:
    paths = files(tmp_path, d="bootstrap.servers=c:1\ngroup.id=h\n")
    words = [f"--consumer.config={paths[name]}" for name in "cd"] + [f"--producer.config={paths['p']}"]
    config = config_of(*words, "--whitelist=a")
    assert [(flow.name, flow.source.bootstrap_servers, flow.commit_source_group) for flow in config.flows] == [
        ("source->target", "a:1", "g"),
        ("source2->target", "c:1", "h"),
    ]
    assert all(flow.shared_remote_topics and flow.target.bootstrap_servers == "b:1" for flow in config.flows)
    files(tmp_path, d="bootstrap.servers=a:1\ngroup.id=g\n")
    with pytest.raises(ConfigError, match="source->target and source2->target commit to the same group g"):
        config_of(*words, "--whitelist=a")


def test_abort_on_send_fail_is_on_error(tmp_path: Path) -> None:
    for options, on_error in (
        ([], "fail"),
        (["--abort.on.send.fail"], "fail"),
        (["--abort.on.send.failure", "true"], "fail"),
        (["--abort.on.send.fail", "false"], "skip"),
    ):
        assert read(tmp_path, "--whitelist", "a", *options).flows[0].on_error == on_error


def test_options_and_words_without_meaning_are_accepted_and_named(tmp_path: Path) -> None:
    ignored = [each for each in OPTIONS if each.status == IGNORED]
    given = [word for each in ignored for word in (f"--{each.name}", *(["1"] if each.metavar else []))]
    config = read(tmp_path, "new.consumer", "--whitelist", "a", "more", *given)
    assert config.flows[0].topics == ("a",)
    expected = [f"--{each.name}: ignored: {each.reason}" for each in ignored]
    expected += [f"{word}: ignored: it belongs to no option" for word in ("new.consumer", "more")]
    assert [each for each in expected if each not in reported(config)] == []


def test_client_keys_that_are_not_read_are_named(tmp_path: Path) -> None:
    old = "zk.connect=z:2181\nshallow.iterator.enable=true\nauto.offset.rest=latest\nclient.id=l\nclient.id=m\n"
    config = read(tmp_path, "--whitelist", "a", c=old, p="producer.type=async\ncompression.codec=0\nacks=1\n")
    for key in ("zk.connect", "shallow.iterator.enable", "producer.type", "compression.codec", "acks"):
        assert f"{key}: ignored: " in reported(config)
    assert "did you mean auto.offset.reset?" in reported(config)
    assert "client.id is given twice, first at" in reported(config)
    (flow,) = config.flows
    assert flow.source.properties.keys() == {"bootstrap.servers", "client.id", "auto.offset.reset"}
    assert flow.target.properties.keys() == {"bootstrap.servers"}


@pytest.mark.parametrize(
    ("options", "contents", "why"),
    [
        (["--whitelist", "a", "--blacklist", "b"], {}, "exactly one"),
        ([], {}, "exactly one"),
        (["--whitelist", "a{1,3}"], {}, "also within"),
        (["--whitelist", "a", "--message.handler", "com.example.Mask"], {}, "cannot be honoured"),
        (["--whitelist", "*"], {}, "write '.*' for anything, not '*' (--whitelist)"),
        (["--whitelist", "a", "--num.streams", "many"], {}, "tasks.max must be a whole number"),
        (["--whitelist", "a", "--abort.on.send.fail", "no"], {}, "must be true or false"),
        (["--whitelist", "a"], {"c": "group.id=\n"}, "the file has no group.id"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, options: List[str], contents: Dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        read(tmp_path, *options, **contents)


def test_file_that_names_zookeeper_only_is_refused_with_the_key_to_add(tmp_path: Path) -> None:
    consumer, producer = tmp_path / "c", tmp_path / "p"
    consumer.write_text("zk.connect=hdp1:2181/kafka\ngroupid=g\n")
    producer.write_text("broker.list=b:1\n")
    with pytest.raises(ConfigError, match=r"names ZooKeeper only.*add bootstrap.servers = host:port of the source's"):
        config_of("--consumer.config", str(consumer), "--producer.config", str(producer), "--whitelist", "a")
    consumer.write_text("bootstrap.servers=a:1\ngroupid=g\n")
    config = config_of("--consumer.config", str(consumer), "--producer.config", str(producer), "--whitelist", "a")
    assert config.flows[0].target.bootstrap_servers == "b:1" and config.flows[0].commit_source_group == "g"


def test_every_process_of_a_group_and_no_other_has_its_lanes(tmp_path: Path) -> None:
    names = [read(tmp_path, "--whitelist", "a", c=f"group.id={group}\n").name for group in ("g/1", "g 1", "g_1", "g/1")]
    assert names[0] == names[3] and len(set(names)) == 3

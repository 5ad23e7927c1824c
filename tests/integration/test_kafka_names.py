"""The names of keys that the loader and the pages go by are those of Kafka's own jars."""

from __future__ import annotations

import pytest

from tools.kafka_names import LIST, list_of_jars


@pytest.mark.long
def test_the_list_is_what_the_jars_have() -> None:
    assert LIST.read_text(encoding="utf-8") == list_of_jars(), "run: python -m tools.kafka_names"

"""The page of `mirror report` in a real browser: of a real run, and of names that attack it."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List

import pytest

from mirror_lib.cli import main
from mirror_lib.report.page import page as rendered
from tests.integration.conftest import Ground, Names
from tests.lab.chromium import CHROMIUM, Page, chromium
from tests.lab.flow_lab import FlowLab, values
from tests.lab.sample_report import ATTACKS, flow_report, hostile_report, mirror_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Page]:
    with chromium(tmp_path / "profile") as page:
        yield page


def numbers(texts: List[str]) -> List[int]:
    return [int(text.replace(",", "")) for text in texts]


def column(browser: Page, place: int, noun: str = "topic") -> List[str]:
    return browser.texts(f"[data-table={noun}] tbody tr:not([hidden]) td:nth-child({place})")


def test_report_of_a_real_run(
    ground: Ground, topic_name: Names, browser: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = FlowLab(*ground, topic_name("report"))
    for number in range(12):
        lab.create(f"topic-{number}", 2)
        lab.write(f"topic-{number}", values(number + 1))
    lab.copy()
    assert main(["verify", str(lab.config)]) == 0
    for number in (3, 10):
        lab.write(f"topic-{number}", values(number * 7, "later"), partition=1)
    output = tmp_path / "report.html"
    assert main(["report", str(lab.config), "-o", str(output)]) == 0
    assert "source->target: healthy" in capsys.readouterr().out

    browser.open(output)
    assert browser.texts("h1") == [lab.name]
    assert browser.texts(".flows .state") == ["✓ healthy"]
    assert browser.texts("[data-table=verification] tbody td")[1:5] == ["equal", "12", "0", "78"]
    assert browser.texts("[data-table=run] tbody td")[3] == "78"
    assert browser.texts("[data-table=run] tbody td")[6] == "ok"

    # The greatest lag comes first; a click on a heading sorts by numbers, downwards and then upwards.
    assert numbers(column(browser, 5)) == [70, 21, *[0] * 10]
    browser.click("[data-table=topic] th:nth-child(5) button")
    assert browser.texts("[data-table=topic] th[aria-sort=descending]") == ["Lag"]
    assert numbers(column(browser, 5)) == [70, 21, *[0] * 10]
    browser.click("[data-table=topic] th:nth-child(5) button")
    assert numbers(column(browser, 5)) == [*[0] * 10, 21, 70]
    browser.click("[data-table=topic] th:nth-child(1) button")
    assert column(browser, 1) == [f"{lab.name}.topic-{number}" for number in range(12)]

    browser.type("[data-table=topic] input", "TOPIC-10")
    assert column(browser, 1) == [f"{lab.name}.topic-10"]
    assert browser.texts("[data-table=topic] .count") == ["1 of 12 topics"]
    browser.click("summary")
    browser.type("[data-table=partition] input", "topic-10")
    assert column(browser, 1, "partition") == [f"{lab.name}.topic-10-{number}" for number in range(2)]
    assert [column(browser, place, "partition") for place in (2, 4, 5)] == [["0", "0"], ["11", "70"], ["0", "70"]]
    assert browser.requests == [output.as_uri()], "the page asks for something"
    assert browser.errors == []


def test_names_that_attack_the_page_do_nothing(browser: Page, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(rendered(hostile_report()), encoding="utf-8")
    browser.open(path)
    before = sorted(column(browser, 1))
    assert len(before) == len(ATTACKS)
    for number in range(1, 9):
        browser.click(f"[data-table=topic] th:nth-child({number}) button")
    assert sorted(column(browser, 1)) == before
    browser.click("summary")
    assert len(column(browser, 1, "partition")) == len(ATTACKS)
    browser.ask(
        "for (const e of document.querySelectorAll('button, td, input')) e.dispatchEvent(new Event('mouseover'))"
    )
    assert browser.ask("typeof window.attacked") == "undefined"
    assert browser.ask("document.querySelectorAll('img, iframe, [onload], [onerror], body script').length") == 1
    assert browser.ask("document.documentElement.scrollWidth <= window.innerWidth"), (
        "a long name makes the page too wide"
    )
    assert browser.requests == [path.as_uri()]
    assert browser.errors == []

    # Even markup that no one escaped does nothing: the policy of the page stops it, and the browser reports that.
    for attack in ("<script>window.attacked=1</script>", "<img src=x onerror=window.attacked=1>"):
        path.write_text(
            rendered(mirror_report([flow_report()])).replace("<header>", attack + "<header>"), encoding="utf-8"
        )
        browser.open(path)
        assert browser.ask("typeof window.attacked") == "undefined"
        assert browser.errors and all("Content Security Policy" in each for each in browser.errors), attack
        browser.errors.clear()

"""A page in headless Chromium: clicks, keys, requests and console errors, by the DevTools protocol over a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from tests.lab.brokers import background, end

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SECONDS = 60.0
_ERRORS = ("error", "warning", "assert")
# Chromium reads orders at descriptor 3 and writes answers at 4.
_START = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--disable-component-update", "--no-first-run", "--hide-scrollbars"),
)


class Page:
    """One page. `requests` are the addresses that it asked for; `errors` are its exceptions and console errors."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders, self._answers = orders, answers
        self._rest = b""
        self._number = 0
        self._session: Optional[str] = None
        self.requests: List[str] = []
        self.errors: List[str] = []
        self._loaded = False
        (target,) = [each for each in self._send("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        self._session = self._send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._send(f"{domain}.enable")

    def open(self, path: Path) -> None:
        self._loaded = False
        self._send("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._read()

    def ask(self, expression: str) -> Any:
        answer = self._send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        place = (
            f"(() => {{const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]})()"
        )
        x, y = self.ask(place)
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, selector: str, text: str) -> None:
        self.click(selector)
        self._send("Input.insertText", text=text)

    def texts(self, selector: str) -> List[str]:
        found: List[str] = self.ask(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")
        return found

    def _send(self, method: str, **parameters: Any) -> Dict[str, Any]:
        self._number += 1
        order = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: Dict[str, Any] = answer["result"]
                return result

    def _read(self) -> Dict[str, Any]:
        until = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
            assert ready, "Chromium does not answer"
            data = os.read(self._answers, 1 << 20)
            assert data, "Chromium has ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        answer: Dict[str, Any] = json.loads(text)
        self._note(answer.get("method", ""), answer.get("params", {}))
        return answer

    def _note(self, method: str, parameters: Dict[str, Any]) -> None:
        level = parameters.get("type") or parameters.get("entry", {}).get("level")
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening") or level in _ERRORS:
            self.errors.append(f"{method}: {parameters}")


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A browser of its own, with its profile in a folder of this test."""
    assert CHROMIUM is not None, "Chromium is not installed"
    orders_out, orders_in = os.pipe()
    answers_out, answers_in = os.pipe()
    # Clear of 3 and 4, which the child replaces.
    theirs = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (orders_out, answers_in)]
    command = ["bash", "-c", _START, *map(str, theirs), CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}"]
    process = background([*command, "about:blank"], profile.parent / "chromium.log", pass_fds=theirs)
    for each in (orders_out, answers_in, *theirs):
        os.close(each)
    try:
        yield Page(orders_in, answers_out)
    finally:
        os.close(orders_in)
        end(process, signal.SIGTERM)
        os.close(answers_out)

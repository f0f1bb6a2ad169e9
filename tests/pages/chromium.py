"""Drives Debian's headless Chromium by its DevTools protocol over a pipe: no port, no driver, no library.

Chromium reads commands from file descriptor 3 and writes answers to 4, JSON with a zero byte behind each.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ANSWER_S = 60.0
WAIT_S = 30.0
LOOK_S = 0.05
READ_BYTES = 1 << 16
PICTURES = "PHOTON_PICTURES"  # the variable that names where screenshots are kept
PICTURE_HEIGHT_MAX = 6000
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip


class Chromium:
    """One browser process; ``tab`` opens a page of its own in it."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        ours_in, theirs_out = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in _pipe())
        theirs_in, ours_out = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in _pipe())
        command = [CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        with open(profile.with_suffix(".log"), "wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command],
                pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log,
            )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._out = ours_out
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, args=(ours_in,), daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(OSError, AssertionError, queue.Empty):
            self.ask("Browser.close")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(20)
        os.close(self._out)

    def ask(self, method: str, parameters: Mapping[str, Any] | None = None, session: str = "") -> dict[str, Any]:
        """The answer of one command."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": dict(parameters or {})}
        if session:
            message["sessionId"] = session
        mine = self._answers[number] = queue.Queue()
        data = json.dumps(message).encode() + b"\0"
        with self._lock:
            while data:
                data = data[os.write(self._out, data) :]
        answer = mine.get(timeout=ANSWER_S)
        del self._answers[number]
        assert "error" not in answer, (method, answer["error"])
        return dict(answer["result"])

    def _read(self, fd: int) -> None:
        rest = b""
        while data := os.read(fd, READ_BYTES):
            *whole, rest = (rest + data).split(b"\0")
            for message in map(json.loads, whole):
                if "id" in message:
                    self._answers[message["id"]].put(message)
                elif (tab := self._tabs.get(message.get("sessionId", ""))) is not None:
                    tab.met(message["method"], message["params"])
        os.close(fd)

    @contextlib.contextmanager
    def tab(self, width: int = 1200, height: int = 900, **media: str) -> Iterator[Tab]:
        """``media``: features to emulate, with _ for -: prefers_color_scheme="dark"."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility", "DOM"):
            tab.ask(f"{domain}.enable")
        tab.ask("Emulation.setFocusEmulationEnabled", {"enabled": True})
        tab.resize(width, height)
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        tab.ask("Emulation.setEmulatedMedia", {"features": features})
        try:
            yield tab
        finally:
            self.ask("Target.disposeBrowserContext", {"browserContextId": context})
            del self._tabs[session]


class Tab:
    """A page, and what it did: ``requests`` (addresses), ``complaints`` (console errors, exceptions, refusals)."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser, self._session = browser, session
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def ask(self, method: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._browser.ask(method, parameters, self._session)

    def met(self, event: str, said: Mapping[str, Any]) -> None:
        """Called by the reading thread."""
        if event == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"])[:2000])
        elif event == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(said["args"])[:2000])
        elif event == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.ask("Emulation.setDeviceMetricsOverride", size)

    def go(self, url: str) -> None:
        self.ask("Page.navigate", {"url": url})

    def js(self, expression: str) -> Any:
        """The value of an expression, JSON."""
        found = self.ask(
            "Runtime.evaluate",
            {
                "expression": expression,
                "returnByValue": True,
                "awaitPromise": True,
                "allowUnsafeEvalBlockedByCSP": False,
            },
        )
        assert "exceptionDetails" not in found, (expression, found["exceptionDetails"])
        return found["result"].get("value")

    def until(self, expression: str, what: str, wait_s: float = WAIT_S) -> None:
        """Polls until the expression holds."""
        end = time.monotonic() + wait_s
        while not self.js(expression):
            assert time.monotonic() < end, (what, self.complaints, self.text()[:3000])
            time.sleep(LOOK_S)

    def text(self) -> str:
        """What can be read."""
        return str(self.js("document.body?.innerText ?? ''"))

    def press(self, key: str) -> None:
        """A key by its name: Tab, Enter, ArrowRight."""
        code = {"Tab": 9, "Enter": 13, " ": 32}.get(key, 0)
        what = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        text = {"Enter": "\r", " ": " "}.get(key)
        self.ask("Input.dispatchKeyEvent", {"type": "keyDown", **what, **({"text": text} if text else {})})
        self.ask("Input.dispatchKeyEvent", {"type": "keyUp", **what})

    def write(self, text: str) -> None:
        """Types where the focus is."""
        self.ask("Input.insertText", {"text": text})

    def focused(self) -> str:
        """What has the keyboard: its tag and its text, label or id."""
        return str(
            self.js("(e => e.tagName.toLowerCase() + ' ' + (e.id || e.textContent.trim()))(document.activeElement)")
        )

    def names(self) -> list[tuple[str, str]]:
        """(role, accessible name) of everything in the accessibility tree."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]

    def picture(self, file: Path, *, grey: bool = False) -> None:
        """The whole page as PNG, where somebody wants to look at it: to paint it is much of what a page costs."""
        kind = "achromatopsia" if grey else "none"
        self.ask("Emulation.setEmulatedVisionDeficiency", {"type": kind})
        if PICTURES not in os.environ:
            return
        high = min(self.js("document.documentElement.scrollHeight"), PICTURE_HEIGHT_MAX)
        clip = {"x": 0, "y": 0, "width": self.js("innerWidth"), "height": high, "scale": 1}
        taken = self.ask("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        file.write_bytes(base64.b64decode(taken["data"]))


def _pipe() -> Iterator[int]:
    """Both ends, closed when they have been copied."""
    ends = os.pipe()
    for fd in ends:
        yield fd
        os.close(fd)

"""Drives an installed Chromium or Firefox, headless, by the browser's own protocol: no driver has
to be installed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FIREFOX = ("firefox-esr", "firefox")
SECONDS = 60
# Moves the two pipes to file descriptors 3 and 4, where Chromium expects them.
_AS_3_AND_4 = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def found(names: tuple[str, ...]) -> str | None:
    """Return the first browser of these names that is installed."""
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One page in one browser."""

    def open(self, path: Path) -> None:
        """Load a file and wait until it has loaded."""
        raise NotImplementedError

    def run(self, script: str) -> Any:
        """Return what a JavaScript expression gives; a promise is awaited."""
        raise NotImplementedError

    def key(self, key: str) -> None:
        """Press a key where the focus is."""
        raise NotImplementedError

    def screenshot(self) -> bytes:
        raise NotImplementedError

    def pdf(self) -> bytes:
        raise NotImplementedError

    def complaints(self) -> list[str]:
        """Return the errors and warnings of the console."""
        raise NotImplementedError

    def requests(self) -> list[str]:
        """Return the addresses that the page requested, except itself and those with data:."""
        raise NotImplementedError

    def wait(self, condition: str) -> Any:
        """Wait until an expression is true, and return it."""
        end = time.monotonic() + SECONDS
        while not (value := self.run(condition)):
            assert time.monotonic() < end, f"{condition} did not come true"
            time.sleep(0.05)
        return value


class Chromium(Browser):
    """Speaks the DevTools protocol through two pipes."""

    def __init__(self, process: subprocess.Popen, reading: int, writing: int):
        self.process, self._in, self._out = process, reading, writing
        self._rest, self._number, self._session = b"", 0, ""
        self._events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._in, 1 << 20)
            assert more, "the browser has gone"
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def window(self, width: int, height: int, scale: float = 1, dark: bool = False) -> None:
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=scale, mobile=False)  # fmt: skip
        self._call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])  # fmt: skip

    def printed(self) -> None:
        """Show the page as it is printed."""
        self._call("Emulation.setEmulatedMedia", media="print")

    def without_scripts(self) -> None:
        self._call("Emulation.setScriptExecutionDisabled", value=True)

    def open(self, path: Path) -> None:
        self._events.clear()
        self._call("Page.navigate", url=path.as_uri())
        while not any(e["method"] == "Page.loadEventFired" for e in self._events):
            self._events.append(self._next())

    def run(self, script: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True,
                            awaitPromise=True)  # fmt: skip
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def key(self, key: str) -> None:
        codes = {"PageUp": 33, "PageDown": 34, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
        code = codes.get(key, ord(key[0].upper()))
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text
            )
            text = {}

    def screenshot(self) -> bytes:
        return base64.b64decode(self._call("Page.captureScreenshot")["data"])

    def pdf(self) -> bytes:
        printed = self._call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        return base64.b64decode(printed["data"])

    def complaints(self) -> list[str]:
        self.run("0")
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [json.dumps(e["params"])[:500] for e in self._events if e["method"] in kinds]

    def requests(self) -> list[str]:
        self.run("0")
        asked = [
            e["params"]["request"]["url"]
            for e in self._events
            if e["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked[1:] if not url.startswith("data:")]


class Firefox(Browser):
    """Speaks Marionette through a socket."""

    def __init__(self, connection: socket.socket):
        self._socket, self._rest, self._number = connection, b"", 0
        self._next()  # Firefox's greeting
        self._call("WebDriver:NewSession", {})
        self._call("WebDriver:SetTimeouts", {"script": 1000 * SECONDS, "pageLoad": 1000 * SECONDS})

    def _call(self, method: str, parameters: dict[str, Any]) -> Any:
        self._number += 1
        message = json.dumps([0, self._number, method, parameters]).encode()
        self._socket.sendall(str(len(message)).encode() + b":" + message)
        _, _, error, result = self._next()
        assert error is None, error
        return result.get("value") if isinstance(result, dict) and "value" in result else result

    def _next(self) -> Any:
        while b":" not in self._rest:
            self._more()
        length, self._rest = self._rest.split(b":", 1)
        while len(self._rest) < int(length):
            self._more()
        message, self._rest = self._rest[: int(length)], self._rest[int(length) :]
        return json.loads(message)

    def _more(self) -> None:
        more = self._socket.recv(1 << 20)
        assert more, "the browser has gone"
        self._rest += more

    def _privileged(self, script: str) -> Any:
        self._call("Marionette:SetContext", {"value": "chrome"})
        try:
            return self._call("WebDriver:ExecuteScript", {"script": script, "args": []})
        finally:
            self._call("Marionette:SetContext", {"value": "content"})

    def window(self, width: int, height: int, scale: float = 1, dark: bool = False) -> None:
        self._call("WebDriver:SetWindowRect", {"width": width, "height": height + 86})

    def open(self, path: Path) -> None:
        self._privileged("Services.console.reset();")
        self._call("WebDriver:Navigate", {"url": path.as_uri()})

    def run(self, script: str) -> Any:
        return self._call("WebDriver:ExecuteScript", {"script": f"return {script};", "args": []})

    def key(self, key: str) -> None:
        codes = {
            "PageUp": "\ue00e", "PageDown": "\ue00f", "ArrowLeft": "\ue012", "ArrowUp": "\ue013",
            "ArrowRight": "\ue014",
        }  # fmt: skip
        press = [{"type": kind, "value": codes.get(key, key)} for kind in ("keyDown", "keyUp")]
        self._call(
            "WebDriver:PerformActions", {"actions": [{"type": "key", "id": "k", "actions": press}]}
        )

    def screenshot(self) -> bytes:
        return base64.b64decode(self._call("WebDriver:TakeScreenshot", {"full": False}))

    def pdf(self) -> bytes:
        # the sizes in @page: the driver's default paper is Letter
        page = {"width": 29.7, "height": 21.0}
        margin = dict.fromkeys(("top", "bottom", "left", "right"), 0.9)
        return base64.b64decode(self._call("WebDriver:Print", {"page": page, "margin": margin}))

    def complaints(self) -> list[str]:
        said = self._privileged(
            "return Services.console.getMessageArray().filter(m => m instanceof Ci.nsIScriptError)"
            ".filter(m => m.sourceName.startsWith('file:')).map(m => m.errorMessage);"
        )
        return list(said)

    def requests(self) -> list[str]:
        asked = self.run("performance.getEntriesByType('resource').map(e => e.name)")
        return [url for url in asked if not url.startswith("data:")]


@contextlib.contextmanager
def chromium(*flags: str) -> Iterator[Chromium]:
    """Run Chromium; as root, which tests in containers are, it has no sandbox."""
    path = found(CHROMIUM)
    assert path
    theirs, out = os.pipe()
    reading, ours = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            path, "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--no-first-run",
            "--remote-debugging-pipe", "--hide-scrollbars", f"--user-data-dir={profile}", *flags,
        ]  # fmt: skip
        wrapped = [sys.executable, "-c", _AS_3_AND_4, str(theirs), str(ours), *command]
        with _running(wrapped, (theirs, ours)) as process:
            os.close(theirs)
            os.close(ours)
            try:
                yield Chromium(process, reading, out)
            finally:
                os.close(reading)
                os.close(out)


@contextlib.contextmanager
def firefox(**preferences: Any) -> Iterator[Firefox]:
    """Run Firefox with preferences; underscores in their names stand for dots."""
    path = found(FIREFOX)
    assert path
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        chosen = {
            "marionette.port": 0,
            "datareporting.policy.dataSubmissionEnabled": False,
            "browser.shell.checkDefaultBrowser": False,
            "layout.css.devPixelsPerPx": "1.0",
            **{name.replace("_", "."): value for name, value in preferences.items()},
        }
        lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in chosen.items()]
        Path(profile, "user.js").write_text("\n".join(lines))
        command = [path, "--headless", "--marionette", "--remote-allow-system-access",
                   "--no-remote", "--profile", profile]  # fmt: skip
        with _running(command, ()), _connected(Path(profile, "MarionetteActivePort")) as connection:
            yield Firefox(connection)


@contextlib.contextmanager
def _running(command: list[str], passed: tuple[int, ...]) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(
        command, pass_fds=passed, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def _connected(port_file: Path) -> Iterator[socket.socket]:
    end = time.monotonic() + SECONDS
    while True:
        try:
            connection = socket.create_connection(
                ("127.0.0.1", int(port_file.read_text(encoding="utf-8"))), 5
            )
            break
        except (OSError, ValueError):
            assert time.monotonic() < end, "Firefox did not start"
            time.sleep(0.1)
    connection.settimeout(SECONDS)
    with connection:
        yield connection


def pages_of(pdf: bytes) -> int:
    """Return how many pages a PDF file has."""
    count = len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf))
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        with contextlib.suppress(zlib.error):
            content = zlib.decompressobj().decompress(stream)
            count += len(re.findall(rb"/Type\s*/Page\b(?!s)", content))
    return count

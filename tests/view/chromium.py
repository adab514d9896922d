"""Chromium without a window, told what to do through a pipe: the DevTools protocol."""

import base64
import io
import json
import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from PIL import Image

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

MAP = "document.getElementById('map').map"

_KEYS = {
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "ArrowUp": 38,
    "Enter": 13,
    "Tab": 9,
    "Escape": 27,
    "Home": 36,
    "End": 35,
}


class Chromium:
    """One tab. Every request and message of the console is kept; hosts but 127.0.0.1 are not found."""

    def __init__(
        self, profile: Path, *, size: tuple[int, int] = (1280, 800), dark: bool = False, mobile: bool = False
    ):
        to_browser, ours = os.pipe()
        theirs, from_browser = os.pipe()
        arguments = [
            "--headless=new", "--no-sandbox", "--remote-debugging-pipe", f"--user-data-dir={profile}",
            "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
            "--hide-scrollbars", "--disable-extensions", "--no-default-browser-check",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            f"--window-size={size[0]},{size[1]}", "about:blank",
        ]  # fmt: skip
        # the protocol is read from descriptor 3 and written to 4; sh may know no descriptors above 9
        shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, BINARY, *arguments],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._writer, self._reader = ours, theirs
        self._number, self._rest, self._session = 0, b"", None
        self.requests: list[str] = []
        self.bytes = 0
        self.console: list[str] = []
        targets = self("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self(f"{domain}.enable")
        width, height = size
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command, and give its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                return found["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            block = os.read(self._reader, 2**20)
            if not block:
                raise RuntimeError("Chromium has ended")
            self._rest += block
        text, _, self._rest = self._rest.partition(b"\0")
        found = json.loads(text)
        told = found.get("params", {})
        match found.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Network.loadingFinished":
                self.bytes += int(told["encodedDataLength"])
            case "Runtime.exceptionThrown":
                self.console.append(
                    told["exceptionDetails"].get("exception", {}).get("description", str(told))
                )
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.console.append(
                    " ".join(str(each.get("value", each.get("description"))) for each in told["args"])
                )
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.console.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        return found

    def run(self, code: str) -> Any:
        """Evaluate an expression in the page, and wait for what it promises."""
        result = self("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(
                result["exceptionDetails"].get("exception", {}).get("description", str(result))
            )
        return result["result"].get("value")

    def until(self, code: str, *, seconds: float = 60.0) -> Any:
        """Wait until an expression is true, and give it."""
        end = time.monotonic() + seconds
        while not (found := self.run(code)):
            if time.monotonic() > end:
                raise TimeoutError(f"{code} is not true after {seconds:g} s; the console says {self.console}")
            time.sleep(0.02)
        return found

    def open(self, url: str, *, settled: bool = True) -> None:
        """Load a page, and wait until it shows something, or has drawn all of it."""
        self("Page.navigate", url=url)
        self.until("document.documentElement?.dataset.shown && document.getElementById('progress').hidden")
        if settled:
            self.settle()

    def settle(self) -> None:
        """Wait until the map has drawn all it was given."""
        self.run(f"new Promise(done => {{ {MAP}.once('idle', () => done()); {MAP}.triggerRepaint() }})")

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        code = {"windowsVirtualKeyCode": _KEYS[key]} if key in _KEYS else {"text": key}
        for kind in ("keyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, key=key, **code)

    def screenshot(self) -> bytes:
        """What the tab shows, as PNG."""
        return base64.b64decode(self("Page.captureScreenshot", format="png")["data"])

    def picture(self) -> Image.Image:
        """The same in red, green and blue."""
        return Image.open(io.BytesIO(self.screenshot())).convert("RGB")

    def close(self) -> None:
        with suppress(Exception):
            self._session = None
            self("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._writer)
        os.close(self._reader)

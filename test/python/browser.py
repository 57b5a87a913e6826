"""Headless Chromium over its debugging pipe: enough to open a page, ask it things, press keys and take pictures.

The pipe (file descriptors 3 and 4) carries JSON messages that end in a NUL, so no library is needed.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome"]
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio", "--remote-debugging-pipe"]


def find():
    """The browser's path, or None."""
    return next((p for p in map(shutil.which, NAMES) if p), None)


class Browser:
    """with Browser() as b: b.open(url); b.ask("document.title")"""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="tessera-browser-")
        to_child, from_child = os.pipe(), os.pipe()
        self.number, self.events, self.rest = 0, [], b""
        # The child finds its ends at 3 and 4, whatever numbers they have here.
        move = f"exec 3<&{to_child[0]} 4>&{from_child[1]}; exec \"$@\""
        self.process = subprocess.Popen(["bash", "-c", move, "bash", find(), f"--user-data-dir={self.folder}", *FLAGS], pass_fds=[to_child[0], from_child[1]],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child[0])
        os.close(from_child[1])
        self.out, self.into = to_child[1], from_child[0]
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.resize(1280, 900)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self, deadline):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.into, 1 << 20) if ready else b""
            assert data, "the browser does not answer"
            self.rest += data
        first, self.rest = self.rest.split(b"\0", 1)
        return json.loads(first)

    def send(self, method, timeout=60, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            got = self.message(deadline)
            if got.get("id") == self.number:
                assert "error" not in got, got
                return got["result"]
            self.events.append(got)

    def resize(self, width, height, scale=1):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def theme(self, name):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def ask(self, expression):
        got = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def wait(self, expression, timeout=20):
        end = time.monotonic() + timeout
        while not self.ask(expression):
            assert time.monotonic() < end, f"never: {expression}"
            time.sleep(0.02)

    def open(self, path, tab=""):
        """A page of the disk; back when it has drawn the view."""
        self.events.clear()
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=f"file://{path}#{tab}")
        self.wait("document.documentElement?.dataset.ready || document.querySelector('main > .bad') != null")

    def go(self, tab):
        self.ask(f"location.hash = {json.dumps(tab)}")
        self.wait(f"document.documentElement.dataset.ready === {json.dumps(tab.split('/')[0])}")
        self.ask("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")

    def press(self, key, code=None):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, **text)

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def picture(self, path):
        data = self.send("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def complaints(self):
        """What the page said that it should not: errors, warnings, exceptions."""
        out = []
        for e in self.events:
            p = e.get("params", {})
            if e.get("method") == "Runtime.exceptionThrown":
                out.append(json.dumps(p["exceptionDetails"])[:500])
            if e.get("method") == "Runtime.consoleAPICalled":
                out.append(json.dumps(p["args"])[:500])
            if e.get("method") == "Log.entryAdded":
                out.append(p["entry"]["text"])
            if e.get("method") == "Page.javascriptDialogOpening":
                out.append("dialog: " + p["message"])
        return out

    def requests(self):
        """What was asked for, but for the page itself."""
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [u for u in urls if not u.startswith(("file:///", "about:", "data:"))] + [u for u in urls if u.startswith("file:///")][1:]

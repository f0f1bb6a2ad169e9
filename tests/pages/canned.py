"""The status page's real server and files, with canned answers in place of a deployment's."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import orjson

from photon.status.http import Answer, HttpServer, plain
from photon.status.parts import on_page
from photon.status.process import read_assets

JSON = "application/json"


class Canned:
    """``status``: what /status.json says (None: nothing at all, 500); ``explained``: status and body."""

    def __init__(self) -> None:
        self.status: dict[str, Any] | None = None
        self.code = 200
        self.explained: tuple[int, Any] = (404, None)
        self.asked = 0
        self._assets = read_assets()
        self._loop = asyncio.new_event_loop()
        self._server = HttpServer(self._answer)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._server.start("127.0.0.1:0"))
        self.url = f"http://127.0.0.1:{self._server.port}/"

    def stop(self) -> None:
        """The server is away; ``again`` brings it back."""
        self._run(self._server.stop())

    def again(self) -> None:
        """At the same address."""
        port = self._server.port
        self._server = HttpServer(self._answer)
        self._run(self._server.start(f"127.0.0.1:{port}"))

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    def _run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def _answer(self, path: str) -> Answer | None:
        if path == "/status.json":
            self.asked += 1
            if self.status is None:
                return plain("broken", 500)
            parts = {"parts": on_page(self.status)} if "flow" in self.status else {}
            return Answer(orjson.dumps(self.status | parts), JSON, self.code)
        if path == "/explain.json":
            code, said = self.explained
            if isinstance(said, str):
                return plain(said, code)
            return None if said is None else Answer(orjson.dumps(said), JSON, code)
        return self._assets.get(path)

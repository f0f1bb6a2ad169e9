"""A receiver for trying out alerts: prints each alert that Alertmanager sends as a JSON line.

python sink.py 0.0.0.0:9094
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BYTES_MAX = 1 << 20


class Sink(BaseHTTPRequestHandler):
    timeout = 10

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 <= size <= BYTES_MAX:
            self.send_error(413)
            return
        try:
            alerts = json.loads(self.rfile.read(size))["alerts"]
            lines = [{"status": each["status"], **each["labels"], **each["annotations"]} for each in alerts]
        except (ValueError, KeyError, TypeError):
            self.send_error(400)
            return
        for line in lines:
            print(json.dumps(line), flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Logs no requests, as the received alerts are the only output."""


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    ThreadingHTTPServer((host, int(port)), Sink).serve_forever()

"""A token server of OAuth that knows one client. Its tokens are JWTs without a signature, for a broker in a test."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


class TokenServer:
    """`status` is what it answers to everybody; `asked` are the forms that it got, `valid_s` its tokens' time."""

    def __init__(self, url: str, client: str, secret: str) -> None:
        self.url = url
        self.login = base64.b64encode(f"{client}:{secret}".encode()).decode()
        self.status = 200
        self.valid_s = 60
        self.asked: list[dict[str, list[str]]] = []
        self.body: bytes | None = None

    def token(self) -> str:
        now = time.time()
        claims = {"sub": "parley", "iat": now, "exp": now + self.valid_s}
        return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@contextmanager
def token_server(client: str, secret: str) -> Iterator[TokenServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            served.asked.append(parse_qs(form))
            is_known = self.headers["Authorization"] == f"Basic {served.login}"
            self.send_response(served.status if is_known else 401)
            if served.status in range(300, 400):
                self.send_header("Location", served.url)
            self.end_headers()
            answer = {"access_token": served.token(), "token_type": "bearer", "expires_in": served.valid_s}
            self.wfile.write(served.body if served.body is not None else json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        served = TokenServer(f"http://127.0.0.1:{http.server_port}/token", client, secret)
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            http.shutdown()
            thread.join()

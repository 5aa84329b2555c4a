"""A Maven repository on loopback that can break connections in the middle of a file."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class MavenServer:
    """Serves `org.example:<name>:1.0` for each name; `broken` counts how often a file is cut off before it is whole."""

    def __init__(self, *names: str) -> None:
        self.broken: dict[str, int] = {}
        self.served: list[str] = []
        self.files = {f"/org/example/{name}/1.0/{name}-1.0.jar": _jar(name) for name in names}

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.rsplit("/", 1)[-1]
        content = self.files.get(request.path)
        if content is None:
            request.send_error(404)
            return
        self.served.append(name)
        request.send_response(200)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if self.broken.get(name, 0) > 0:
            self.broken[name] -= 1
            content = content[: len(content) // 2]
            request.close_connection = True
        request.wfile.write(content)


@contextmanager
def serving(server: MavenServer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def _jar(name: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as jar:
        jar.writestr(f"{name}.class", name * 5000)
    return content.getvalue()

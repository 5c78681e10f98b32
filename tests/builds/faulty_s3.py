"""Serves a bucket `bundles` by Amazon's S3 protocol (moto), and prints its URL.

The argument N makes one of N answers wrong: an error of the server, a cut or changed body, an empty body, a closed
connection, or a missing object. `GET /faults` counts the faults. Faults are drawn from a fixed seed.
"""

import random
import socket
import sys
import threading

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

KINDS = ["error", "cut", "changed", "empty", "closed", "missing"]


class Faults:
    """WSGI application that answers like another one, with faults."""

    def __init__(self, app, every):
        self.app, self.every = app, every
        self.random = random.Random(1)
        self.count = 0
        self.lock = threading.Lock()

    def draw(self, environ):
        with self.lock:
            if not self.every or environ["HTTP_AUTHORIZATION"] == "none" or self.random.randrange(self.every):
                return None
            kind = self.random.choice(KINDS)
            # A cut or changed answer to an upload has no body to cut.
            if environ["REQUEST_METHOD"] != "GET" and kind in ("cut", "changed", "empty", "missing"):
                kind = "error"
            self.count += 1
            return kind

    def __call__(self, environ, start_response):
        if environ["PATH_INFO"] == "/faults":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [str(self.count).encode()]
        kind = self.draw(environ) if "HTTP_AUTHORIZATION" in environ else None
        if kind == "error":
            start_response("500 Internal Server Error", [])
            return [b"fault"]
        if kind == "missing":
            start_response("404 Not Found", [("Content-Type", "application/xml")])
            return [b"<Error><Code>NoSuchKey</Code></Error>"]
        if kind == "closed":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        answer = {}

        def remember(status, headers, exc_info=None):
            answer["status"], answer["headers"] = status, list(headers)

        body = b"".join(self.app(environ, remember))
        headers = answer["headers"]
        if kind == "changed" and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        if kind == "empty":
            body = b""
            headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            headers.append(("Content-Length", "0"))
        if kind == "cut":
            # The length says more than what comes.
            body = body[: len(body) // 2]
        start_response(answer["status"], headers)
        return [body]


class Quiet(WSGIRequestHandler):
    """Handler that logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, *_):
        pass


def main():
    every = int(sys.argv[1])
    app = Faults(DomainDispatcherApplication(create_backend_app), 0)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.port}"
    client = boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    client.create_bucket(Bucket="bundles")
    app.every = every
    print(url, flush=True)
    # The test closes this pipe when it ends.
    sys.stdin.read()


main()

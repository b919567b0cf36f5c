"""The stage of every client check: a loopback upstream, the gateway's binary in front of it, and the count at the end.

    with Upstream(play) as up, Weir(binary, config) as weir: …

`play(method, path, headers, body)` gives `(status, content type, [pieces])`; a piece `None` cuts the connection.
"""
import http.client
import http.server
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

KEY = "sk-test"
START_SECONDS = 20  # a debug binary on a busy machine


class Upstream:
    """A server on a port of its own."""

    def __init__(self, play):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status, kind, pieces = play("POST", self.path, self.headers, body)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for piece in pieces:
                    if piece is None:
                        self.wfile.flush()
                        self.connection.shutdown(socket.SHUT_RDWR)
                        self.close_connection = True
                        return
                    if piece:
                        self.wfile.write(b"%x\r\n" % len(piece) + piece + b"\r\n")
                        self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):  # a client that has gone is none of ours
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()


class Weir:
    """The gateway under this config, on a port of its own."""

    def __init__(self, binary, config):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-clients-"))
        with socket.socket() as one, socket.socket() as other:
            for free in (one, other):
                free.bind(("127.0.0.1", 0))
            self.port, admin = one.getsockname()[1], other.getsockname()[1]
        head = (f'[server]\nlisten = ["127.0.0.1:{self.port}"]\n[admin]\nlisten = "127.0.0.1:{admin}"\n[store]\nurl = "sqlite:{self.folder}/weir.db"\n'
                f'spool = "{self.folder}/spool"\n[log]\naccess = "{self.folder}/access.log"\n'
                f'[keys.test]\nsecret = "{KEY}"\n')
        path = self.folder / "weir.toml"
        path.write_text(head + config)
        self.log = open(self.folder / "stderr.log", "wb")
        self.process = subprocess.Popen([os.path.abspath(binary), "run", "--config", str(path)], stdout=self.log, stderr=self.log, cwd=self.folder)
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
                asked.request("GET", "/health")
                if asked.getresponse().status == 200:
                    return self
            except OSError:
                time.sleep(0.03)
        said = self.said()
        self.__exit__()
        raise SystemExit(f"the gateway did not start:\n{said}")

    def said(self):
        """What it has written to its standard error."""
        return (self.folder / "stderr.log").read_text(errors="replace")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def provider(name, preset, url, models, more=""):
    """A provider of a preset with these models, and a model `name/…` of each by itself."""
    text = f'[providers.{name}]\npreset = "{preset}"\nbase_url = "{url}"\napi_keys = ["sk-upstream"]\n{more}'
    return text + "".join(f'[providers.{name}.models."{model}"]\n' for model in models)


class Count:
    """Prints a line for each check, and the count."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, run):
        """Runs one check; what it raises is its fault."""
        try:
            run()
        except BaseException as fault:  # an SDK may raise anything
            if isinstance(fault, KeyboardInterrupt):
                raise
            self.failed += 1
            print(f"FAILED {name}: {type(fault).__name__}: {str(fault)[:600]}", flush=True)
            return
        self.passed += 1
        print(f"ok {name}", flush=True)

    def end(self):
        """The closing line; exits with 1 when a check failed or none ran."""
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        sys.exit(self.failed > 0 or self.passed == 0)

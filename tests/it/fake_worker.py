#!/usr/bin/env python3
"""A stand-in for the worker: speaks its lines on stdin and stdout and, on stage 0, the parts of
the head's HTTP that the demo uses. Answers with numbered words. Written for tests of the demo;
computes nothing. FAKE_PACE: seconds between words."""
import json
import os
import socketserver
import sys
import threading
import time

assign = json.loads(sys.stdin.readline())
assert assign["do"] == "assign", assign
stage, stages = assign["stage"], assign["stages"]
pace = float(os.environ.get("FAKE_PACE", "0.001"))
started = time.monotonic()


def say(**report):
    print(json.dumps(report), flush=True)


def status():
    per_stage = [
        dict(stage=s, host=f"local-{s + 1}", first_layer=0, layers=1, piece_bytes=1, alive=True,
             steps=0, rows=0, compute_ns=0, wait_ns=0, bytes_sent=0, frames_sent=0,
             data_bytes_sent=0, data_frames_sent=0, kv_used=0, kv_total=1, anonymous_bytes=4096,
             peers_refused=0)
        for s in range(stages)
    ]
    return dict(deployment=assign["deployment"], model=assign["api"]["model"], state="serving",
                reason=None, api="127.0.0.1:1", epoch=0, uptime_s=time.monotonic() - started,
                running=0, waiting=0, prompt_tokens=0, generated_tokens=0, stages=per_stage)


class Head(socketserver.StreamRequestHandler):
    def handle(self):
        line = self.rfile.readline().decode()
        length = 0
        while (header := self.rfile.readline().strip()):
            name, _, value = header.decode().partition(":")
            if name.lower() == "content-length":
                length = int(value)
        body = json.loads(self.rfile.read(length)) if length else None

        def head(kind):
            self.wfile.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode())

        if line.startswith("GET /control/status"):
            head("application/json")
            self.wfile.write(json.dumps(status()).encode())
        elif line.startswith("GET /control/events"):
            head("application/x-ndjson")
            while True:
                self.wfile.write(json.dumps(dict(event="status", **status())).encode() + b"\n")
                self.wfile.flush()
                time.sleep(0.05)
        elif line.startswith("POST /v1/chat/completions"):
            assert body["temperature"] == 0 and body["stream"] and body["ignore_eos"], body
            head("text/event-stream")

            def chunk(value):
                self.wfile.write(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")
                self.wfile.flush()

            count = body["max_tokens"]
            for i in range(count):
                chunk(dict(id="c", choices=[dict(index=0, delta=dict(content=f"{i} "), finish_reason=None)]))
                time.sleep(pace)
            chunk(dict(id="c", choices=[dict(index=0, delta={}, finish_reason="length")]))
            chunk(dict(id="c", choices=[], usage=dict(prompt_tokens=5, completion_tokens=count)))
            chunk(b"[DONE]")


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


for field in ("pieces", "manifest", "layers", "context", "kv_blocks", "threads"):
    assert assign[field], field
assert os.path.exists(os.path.join(assign["pieces"], assign["manifest"]))
assert (assign["identity"] is None) == (stages == 1)
say(event="listening", address=f"127.0.0.1:{1000 + stage}")
peers = json.loads(sys.stdin.readline())
assert peers["do"] == "peers" and len(peers["addresses"]) == stages, peers
say(event="loaded", layers=assign["layers"], bytes=1000, seconds=0.1, device="none")
say(event="ready")
if stage == 0:
    server = Server(assign["api"]["control"], Head)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(event="serving", api="127.0.0.1:1")
for line in sys.stdin:
    if json.loads(line)["do"] == "stop":
        break
os._exit(0)

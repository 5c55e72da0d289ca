"""The programs of the proof: started with a log each, ended by their own process, always."""

import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time

PROGRAM = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"), "debug/tokenprobe").absolute()
BEGIN = time.monotonic()
# The proof ends by then, whatever is still awaited.
SECONDS_MAX = 900


class Stage:
    """What runs, by name."""

    def __init__(self, scratch):
        self.scratch, self.running, self.ports = scratch, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.end(*reversed(list(self.running)))
        if kind:
            for name in ("demo", "faults", "own", "shipped", "short"):
                log = self.scratch / f"{name}.log"
                lines = log.read_text(errors="replace").splitlines() if log.exists() else []
                print(f"--- {name}", *lines[-3:], sep="\n    ", file=sys.stderr)
            print(f"NOT PROVEN after {seconds():.0f}s", file=sys.stderr)

    def address(self, name):
        """A loopback address that belongs to `name` for as long as the proof runs."""
        if name not in self.ports:
            self.ports[name] = free_port()
        return f"127.0.0.1:{self.ports[name]}"

    def run(self, name, *command, env=None):
        with open(self.scratch / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log,
                                                  env=os.environ | (env or {}))

    def simulator(self, name, *more, env=None):
        self.run(name, PROGRAM, "simulate", "--listen-address", self.address(name), "--allow-faults", *more, env=env)

    def prober(self, name, *arguments):
        self.run(name, PROGRAM, "serve", *arguments, "--web.listen-address", self.address(name))
        return self.address(name)

    def demo(self):
        return self.prober("demo", "--demo")

    def end(self, *names):
        ending = [self.running.pop(name) for name in names]
        for process in ending:
            process.terminate()
        for process in ending:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def signal(self, name, number):
        self.running[name].send_signal(number)


def free_port():
    """Below the ports that connections are given, so that none of them takes it meanwhile."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def prometheus_program():
    found = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
    return found or sys.exit("prometheus is not installed (or set PROMETHEUS)")


def seconds():
    return time.monotonic() - BEGIN


def say(text):
    print(f"\n== {seconds():.0f}s: {text}", flush=True)


def wait_for(limit, condition, describe=lambda: ""):
    """Asks once a second; a program that does not answer yet is asked again."""
    end = min(seconds() + limit, SECONDS_MAX)
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        if seconds() > end:
            raise SystemExit(f"gave up waiting after {limit}s. {describe()}")
        time.sleep(1)

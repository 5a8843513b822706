"""The supervisor: each run is a process of its own, as it forks and takes signals."""

from __future__ import annotations

import subprocess
import sys

PRELUDE = """
import errno, os, select, signal
from mqcd.daemon.shards.supervisor import FRONT, Part, State, Supervisor, stops
from mqcd.net.shared.balance import Mailboxes

DEAF = {signal.SIGTERM, signal.SIGINT}

def deaf(part):
    # As a process is that was forked just now.
    signal.pthread_sigmask(signal.SIG_BLOCK, DEAF)
    part.say(State.RUNNING)
    return int(not until_stopped(part))

def until_stopped(part):
    poll = select.poll()
    poll.register(part.alive, select.POLLIN)
    return poll.poll(5000) and stops(part.alive)

def supervise(serve, front=deaf):
    parts = [Part(0, 0, pause=1), Part(1, 1, pause=1), Part(FRONT, FRONT, pause=1)]
    return Supervisor(parts, Mailboxes.make(2), serve, front).run()
"""


def run(script: str) -> int:
    return subprocess.run([sys.executable, "-c", PRELUDE + script], timeout=60).returncode


def test_a_process_that_no_signal_reaches_stops() -> None:
    script = """
def serve(part):
    if part.shard == 1:
        os.kill(os.getppid(), signal.SIGTERM)
    return deaf(part)

raise SystemExit(supervise(serve))
"""
    assert run(script) == 0


def test_a_stop_that_begins_before_all_said_how_they_are() -> None:
    script = """
def serve(part):
    if part.shard == 1:
        os.kill(os.getppid(), signal.SIGTERM)
        until_stopped(part)
    part.say(State.OUT)
    return 0

raise SystemExit(supervise(serve))
"""
    assert run(script) == 0


def test_no_shard_can_start() -> None:
    script = """
def serve(part):
    part.say(State.OUT)
    return int(not until_stopped(part))

raise SystemExit(supervise(serve))
"""
    assert run(script) == 1


def test_a_process_learns_that_the_supervisor_is_gone() -> None:
    script = """
def serve(part):
    if part.shard == 1:
        os.kill(os.getppid(), signal.SIGKILL)
    poll = select.poll()
    poll.register(part.alive, select.POLLIN)
    os.write(ends, b"y" if poll.poll(5000) and not stops(part.alive) else b"n")
    return 0

seen, ends = os.pipe()
pid = os.fork()
if not pid:
    os._exit(supervise(serve, serve))
os.close(ends)
os.waitpid(pid, 0)
answers = b""
while answer := os.read(seen, 9):
    answers += answer
assert answers and set(answers) == set(b"y"), answers
"""
    assert run(script) == 0


def test_a_process_that_starts_misses_no_reload() -> None:
    script = """
heard, hears = os.pipe()
HUP = {signal.SIGHUP}

def serve(part):
    if part.shard == 0:
        # Still at its start when the supervisor has sent the signal: the other shard has it.
        os.read(heard, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, HUP)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    part.say(State.RUNNING)
    if part.shard == 1:
        os.kill(os.getppid(), signal.SIGHUP)
    reloaded = signal.sigtimedwait(HUP, 30)
    os.write(hears, b"h")
    if part.shard == 0:
        os.kill(os.getppid(), signal.SIGTERM)
    return int(not (until_stopped(part) and reloaded))

raise SystemExit(supervise(serve))
"""
    assert run(script) == 0


def test_a_process_that_cannot_be_forked_is_tried_again() -> None:
    script = """
tries = {"fork": 0, "pidfd_open": 0}

def failing(name, at, number):
    real = getattr(os, name)
    def call(*given):
        tries[name] += 1
        if tries[name] == at:
            raise OSError(number, os.strerror(number))
        return real(*given)
    setattr(os, name, call)

# Shard 1 is started again: by the third try.
failing("fork", 4, errno.EAGAIN)
failing("pidfd_open", 4, errno.EMFILE)

def serve(part):
    if part.shard == 0:
        return deaf(part)
    if tries["fork"] <= 3:
        part.say(State.RUNNING)
        os.read(go, 1)
        os.kill(os.getpid(), signal.SIGKILL)
    if tries["fork"] == 6:
        os.kill(os.getppid(), signal.SIGTERM)
    return deaf(part)

def front(part):
    os.write(goes, b"g")
    return deaf(part)

go, goes = os.pipe()
before = len(os.listdir("/proc/self/fd"))
code = supervise(serve, front)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    pass
else:
    raise SystemExit("a process is left")
assert len(os.listdir("/proc/self/fd")) == before + 4, "a descriptor is left"
raise SystemExit(code)
"""
    assert run(script) == 0

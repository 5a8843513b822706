"""Advice from end to end: refusals become evidence, evidence a proposal, and a running server heeds it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import smtplib
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import mqcd
from tests.e2e.conftest import MakeReceiver, MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.plan import Plan, relay
from tests.e2e.kit.server import ROOT, Server
from tests.e2e.kit.waiting import poll
from tests.pipeline.asking import say
from tests.pipeline.making import HOUR, Log

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(900)]

DAY = 24 * HOUR
DEAD, ALIVE = "dead-one@site.test", "alive@site.test"


def command(server: Server, *words: str) -> str:
    """What `mqcd pipeline` says."""
    code, said = say(server.conf, server.var, *words)
    assert code == 0
    return said


def submitted(server: Server, *words: str) -> str:
    """The same by spark-submit, as docs/pipeline.md has it. Its page would fail: the port is taken."""
    pythons = [f"spark.pyspark.{name}python={sys.executable}" for name in ("", "driver.")]
    sizes = ["spark.driver.memory=512m", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"]
    program = Path(mqcd.__path__[0]) / "__main__.py"
    place = ["-c", str(server.conf), "--var", str(server.var)]
    environ = {key: value for key, value in os.environ.items() if key != "SPARK_CONF_DIR"}
    home = Path(pyspark.__path__[0])
    environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home)}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        page = ["spark.port.maxRetries=0", f"spark.ui.port={taken.getsockname()[1]}"]
        conf = [word for each in (*pythons, *sizes, *page) for word in ("--conf", each)]
        submit = [str(home / "bin/spark-submit"), "--master", "local[2]", *conf, str(program), "pipeline"]
        done = subprocess.run(
            [*submit, *words, *place],
            capture_output=True, text=True, cwd=ROOT, timeout=400, check=False, env=environ,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert " INFO " not in done.stderr
    return done.stdout


def answer(server: Server, recipient: str) -> tuple[int, str]:
    """To RCPT."""
    with smtplib.SMTP("127.0.0.1", server.port) as client:
        client.ehlo("client.test")
        client.mail("sender@origin.test")
        code, text = client.rcpt(recipient)
    return code, text.decode()


def refused_before(events: Path) -> None:
    """What another node of the same organisation met on two days of this week."""
    log, now = Log("other"), time.time_ns() // 1_000_000
    for days in (4, 2):
        shared = log.accept(now - days * DAY, DEAD)
        log.verdict(shared, "bounced", now - days * DAY + 1000, phase="rcpt")
        log.verdict(log.accept(now - days * DAY, ALIVE), "delivered", now - days * DAY + 1000)
    log.seal(events)


def told(server: Server, verb: str, recipient: str) -> bool:
    """Whether a closed event file of the server says so."""
    lines = (
        json.loads(line)
        for path in (server.var / "events").glob("node-*.jsonl.gz")
        for line in gzip.decompress(path.read_bytes()).splitlines()
    )
    return any((each["event"], each.get("recipient")) == (verb, recipient) for each in lines)


def test_a_suppressed_recipient_is_refused_until_cancelled(
    spark: SparkSession, make_server: MakeServer, make_receiver: MakeReceiver
) -> None:
    receiver = make_receiver("dead-*=550 5.1.1 no such user here")
    plan = Plan(relays=relay(receiver.port), journal={"seal_age": "200ms"})
    server = make_server(plan).start()
    for recipient in (DEAD, ALIVE):
        mail.send(server.port, mail.message("first"), recipient)
    poll(lambda: told(server, "bounced", DEAD), "an event file with the refusal")
    refused_before(server.var / "events")

    made = submitted(server, "run", "--json")
    assert json.loads(made)["damaged"] == 0
    (proposed,) = [json.loads(line) for line in command(server, "advise", "--json").splitlines()]
    assert proposed["recipient"] == DEAD
    assert proposed["reply"].endswith("no such user here")
    assert proposed["evidence"].startswith("3 messages ")
    assert answer(server, DEAD)[0] == 250, "proposed, and not applied"

    assert command(server, "advise", "--apply").startswith("in effect: 1 new")
    server.metric("mqcd_advice_pieces{suppress}", 1)
    code, text = answer(server, DEAD.upper())
    assert code == 550
    assert text.startswith("5.1.1 ")
    assert proposed["until"][:10] in text
    assert proposed["id"] in text
    assert answer(server, ALIVE)[0] == 250

    # The same list, but its mail is taken and comes back without an attempt.
    tried = len(receiver.refused.all())
    server.conf.write_text(plan.xml().replace("<submit>", "<submit><suppression>bounce</suppression>"))
    server.signal(signal.SIGHUP)
    server.lines.first(lambda line: line.get("msg", "").startswith("SIGHUP: took over"), "the reload")
    mail.send(server.port, mail.message("bounced"), [DEAD, ALIVE], sender="other@origin.test")
    report = receiver.to("other@origin.test").content
    assert b"suppression list" in report
    assert DEAD.encode() in report
    receiver.to(ALIVE)
    assert len(receiver.refused.all()) == tried

    assert DEAD in command(server, "advise", "--cancel", proposed["id"])
    server.metric("mqcd_advice_pieces{suppress}", 0)
    mail.send(server.port, mail.message("again"), DEAD)
    poll(lambda: len(receiver.refused.all()) > tried, "an attempt at the next hop")
    assert f"cancelled {proposed['id']}" in command(server, "advise", "--list")
    assert server.stop() == 0

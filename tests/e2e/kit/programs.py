"""Mail by the libraries of other programs: nodemailer in node, PHPMailer in PHP, aiosmtplib in Python."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
from collections.abc import Mapping
from email.message import EmailMessage
from pathlib import Path

import aiosmtplib
import pytest

from tests.e2e.kit import mail
from tests.e2e.kit.waiting import DEADLINE

_ASIDE = Path(__file__).parents[3] / ".test/debs"
_MODULES = (Path("/usr/share/nodejs"), _ASIDE / "usr/share/nodejs")
_PHPMAILER = "usr/share/php/libphp-phpmailer/src"
_SCRIPT = """
const [, options, message] = process.argv;
require("nodemailer").createTransport(JSON.parse(options)).sendMail(JSON.parse(message), (error, sent) => {
  console.log(error || sent.response);
  process.exit(error || !sent.response.startsWith("250 ") ? 1 : 0);
});
"""
_PHP = """
[, $source, $settings, $message] = $argv;
foreach (["Exception", "SMTP", "PHPMailer"] as $class) require "$source/$class.php";
$mailer = new PHPMailer\\PHPMailer\\PHPMailer(true);
$mailer->isSMTP();
foreach (json_decode($settings, true) as $name => $value) $mailer->$name = $value;
$sent = json_decode($message, true);
$mailer->setFrom($sent["from"]);
$mailer->addAddress($sent["to"]);
$mailer->Subject = $sent["subject"];
$mailer->Body = $sent["text"];
$mailer->send();
"""


def by_nodemailer(options: dict[str, object], message: Mapping[str, object]) -> str:
    """Send by node; the reply. `options`: of a transport. Skips the test where nodemailer is missing."""
    places = [str(place) for place in _MODULES if (place / "nodemailer").is_dir()]
    if not places:
        pytest.skip("not installed: node-nodemailer; on Debian, tests/run unpacks it")
    given = {"host": "127.0.0.1", "name": mail.HELO} | options
    done = subprocess.run(
        ["node", "-e", _SCRIPT, json.dumps(given), json.dumps(message)],
        env=os.environ | {"NODE_PATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def by_phpmailer(settings: Mapping[str, object], message: Mapping[str, str]) -> None:
    """Send by PHP over SMTP; `settings`: properties of PHPMailer. Skips the test where it is missing."""
    source = next((each for root in (Path("/"), _ASIDE) if (each := root / _PHPMAILER).is_dir()), None)
    if source is None:
        pytest.skip("not installed: libphp-phpmailer; on Debian, tests/run unpacks it")
    given = {"Host": "127.0.0.1", "Helo": mail.HELO, "SMTPAuth": True} | dict(settings)
    done = subprocess.run(
        ["php", "-r", _PHP, "--", str(source), json.dumps(given), json.dumps(message)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout + done.stderr == ""


def by_aiosmtplib(
    port: int,
    sender: str,
    recipient: str,
    login: tuple[str, str],
    mechanism: str,
    *,
    context: ssl.SSLContext | None = None,
    tls_first: bool = False,
) -> str:
    """Send by aiosmtplib; the reply. With `context` over TLS, by STARTTLS unless `tls_first`."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, recipient, "aiosmtplib"
    message.set_content("hello\n")

    async def send() -> str:
        client = aiosmtplib.SMTP(
            hostname="127.0.0.1",
            port=port,
            local_hostname=mail.HELO,
            timeout=DEADLINE,
            use_tls=tls_first,
            start_tls=context is not None and not tls_first,
            tls_context=context,
        )
        async with client:
            await client.ehlo()
            await getattr(client, f"auth_{mechanism.lower().replace('-', '')}")(*login)
            _, reply = await client.send_message(message, sender=sender, recipients=[recipient])
        # The library leaves the end of its connection to the loop, which ends here.
        for transport in tuple(getattr(asyncio.get_running_loop(), "_transports", {}).values()):
            transport.abort()
        for _ in range(3):
            await asyncio.sleep(0)
        return reply

    return asyncio.run(send())

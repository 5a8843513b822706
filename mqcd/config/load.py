"""A configuration file, or its octets, to frozen settings: the one way in.

    loaded = load(pathlib.Path("conf/mqcd.xml"), var=None, hostname="mail.example.com")

Guarantees: either settings that are complete (every token replaced, paths absolute, inherited values filled
in), with a warning for each thing that is ignored, or `BadConfiguration` with every error of the file at
once, each with file, line, element path and what was expected. Besides the file, only the files of
passwords that it names are read.
"""

import dataclasses
import pathlib
import stat
from collections.abc import Callable, Mapping

from mqcd.config.checks.complete import complete, contradictions, oddities
from mqcd.config.checks.doubts import doubts, other_defaults
from mqcd.config.checks.faults import Faults, Remarks, listeners, numbered, relays
from mqcd.config.document import BadDocument, Node, parse_document
from mqcd.config.problems import BadConfiguration, Remark
from mqcd.config.reader import Reader, TooManyErrors
from mqcd.config.settings import Secret, Settings
from mqcd.config.tokens import Tokens
from mqcd.core.value import value

MAX_OCTETS = 4 * 1024 * 1024
"""A larger file is no configuration: it is refused before it is parsed."""
MAX_SECRET = 4096
"""Octets of a password."""


@value
class Loaded:
    """The settings of a file, and warnings for its writer; each prints as `file:line: path: text`."""

    settings: Settings
    warnings: tuple[Remark, ...]
    var: pathlib.Path
    """What %DIRVAR% stands for; absolute."""
    lines: Mapping[str, int] = dataclasses.field(compare=False, repr=False)
    """By path, the line of each value that the file sets."""
    remark: Callable[[str, str], Remark] = dataclasses.field(compare=False, repr=False)
    """Of a path, with list indexes, and a text: a remark that has the line."""


def load(path: pathlib.Path, *, var: pathlib.Path | None, hostname: str) -> Loaded:
    """Load a file.

    `var` is what %DIRVAR% stands for; None: `var` beside the directory that holds the file. `hostname` is
    what %SYSNAME% stands for. Raises BadConfiguration, also for a file that cannot be read.
    """
    try:
        with path.open("rb") as file:
            octets = file.read(MAX_OCTETS + 1)
    except OSError as error:
        text = f"cannot be read: {error.strerror}. Name the file with -c FILE, or in MQCD_CONF"
        raise BadConfiguration((Remark(file=str(path), line=0, path="", text=text),)) from error
    conf = path.absolute().parent
    loaded = load_text(octets, name=str(path), conf=conf, var=var, hostname=hostname, secret=_secret)
    exposed = [loaded.remark(*each) for each in _exposed(path, loaded.settings)]
    return dataclasses.replace(loaded, warnings=(*loaded.warnings, *exposed))


def _exposed(conf: pathlib.Path, settings: Settings) -> Remarks:
    """Files with secrets that every user of the machine can read."""
    for at, relay in relays(settings):
        password, ssl = relay.auth.password, relay.ssl
        if password.text and not password.from_file and _open_to_all(conf):
            text = f"every user can read it: chmod o-r {conf}, or put it into a file of its own (file=)"
            yield f"{at}/auth/password", text
        yield from _open_file(f"{at}/auth/password@file", relay.auth.passwordfile)
        key = "certfile" if ssl.keyfile is None else "keyfile"
        yield from _open_file(f"{at}/ssl@{key}", ssl.keyfile or ssl.certfile)
    for at, listener in listeners(settings):
        keys, certificates = listener.ssl.keyfile, listener.ssl.certfile
        key = "keyfile" if keys else "certfile"
        for path in keys or certificates:
            yield from _open_file(f"{at}/ssl@{key}", path)
    page = settings.ops.page
    key = "certfile" if page.keyfile is None else "keyfile"
    yield from _open_file(f"ops/page@{key}", page.keyfile or page.certfile)
    for at, hook in numbered("ops/feeds/webhooks/webhook", settings.ops.feeds.webhooks):
        yield from _open_file(f"{at}@secretfile", hook.secretfile)
    yield from _open_file("ops/events/hashkey@file", settings.ops.events.hashkey)


def _open_file(at: str, path: pathlib.Path | None) -> Remarks:
    if path is not None and _open_to_all(path):
        yield at, f"every user can read the secret in it: chmod o-r {path}"


def _open_to_all(path: pathlib.Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        # A file that cannot be read is reported elsewhere.
        return False


def _secret(path: pathlib.Path) -> str:
    """What a file of a password holds: its first line, which LF or CRLF ends and nothing else. Raises OSError
    and ValueError, with what is wrong."""
    with path.open("rb") as file:
        octets = file.readline(MAX_SECRET + 2)
    line = octets.removesuffix(b"\n").removesuffix(b"\r")
    if not line:
        raise ValueError("its first line is empty")
    if len(line) > MAX_SECRET:
        raise ValueError(f"its first line has more than {MAX_SECRET} octets")
    try:
        return line.decode()
    except UnicodeDecodeError:
        # What it says of itself has a part of the line.
        raise ValueError("its first line is not UTF-8") from None


def _with_secrets(settings: Settings, reader: Reader, secret: Callable[[pathlib.Path], str]) -> Settings:
    """The settings, with the passwords that stand in files of their own."""
    made = []
    for here, relay in relays(settings):
        path = relay.auth.passwordfile
        if path is not None and relay.auth.enabled:
            try:
                password = Secret(secret(path), from_file=True)
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                reader.error(f"{here}/auth/password@file", f"{path} cannot be read as a password: {why}")
            else:
                auth = dataclasses.replace(relay.auth, password=password)
                relay = dataclasses.replace(relay, auth=auth)
        made.append(relay)
    deliver = dataclasses.replace(settings.deliver, relays=tuple(made))
    return dataclasses.replace(settings, deliver=deliver)


def load_text(
    octets: bytes,
    *,
    name: str,
    conf: pathlib.Path,
    var: pathlib.Path | None,
    hostname: str,
    secret: Callable[[pathlib.Path], str] | None = None,
) -> Loaded:
    """Load the octets of a file: `name` stands in remarks, `conf` is the directory it would lie in.

    `secret` reads a password's file; without it such passwords stay empty.
    """
    tokens = Tokens(conf=conf, var=(var or conf.parent / "var").absolute(), hostname=hostname)
    reader = Reader(name, tokens)
    try:
        if len(octets) > MAX_OCTETS:
            raise BadDocument(1, f"more than {MAX_OCTETS} octets: this is no configuration")
        root = parse_document(octets)
    except BadDocument as error:
        raise BadConfiguration((Remark(file=name, line=error.line, path="", text=str(error)),)) from None
    try:
        settings = _read(root, reader, secret)
    except TooManyErrors:
        raise BadConfiguration(tuple(reader.errors)) from None
    if reader.errors:
        raise BadConfiguration(tuple(reader.errors))
    warnings = sorted(reader.warnings)
    if (more := reader.warned - len(warnings)) > 0:
        warnings.append(Remark(file=name, line=0, path="", text=f"{more} more warnings are not listed"))
    return Loaded(
        settings=settings,
        warnings=tuple(warnings),
        var=tokens.var,
        lines={path: reader.line_of(path) for path in reader.given},
        remark=reader.remark,
    )


def _read(root: Node, reader: Reader, secret: Callable[[pathlib.Path], str] | None) -> Settings:
    """The settings of a document; the reader keeps the remarks. Raises TooManyErrors."""
    written = reader.read(root)
    settings = complete(written, reader.given)
    for path, text in contradictions(settings, Faults(remark.path for remark in reader.errors)):
        reader.error(path, text)
    if secret is not None:
        settings = _with_secrets(settings, reader, secret)
    remarks = [*oddities(written, reader.given), *doubts(settings)]
    if reader.foreign:
        remarks += other_defaults(settings, reader.given)
    for path, text in remarks:
        reader.warn(path, text)
    return settings


def defaults(*, var: pathlib.Path, hostname: str) -> Settings:
    """The settings of a file that says nothing."""
    empty = b"<mailserver/>"
    return load_text(empty, name="defaults", conf=var.parent / "conf", var=var, hostname=hostname).settings

"""Messages by e-mail, with smtplib in a thread.

TLS is required, by STARTTLS or from the first byte, unless the server is on this machine or the user wrote
`tls: false`.
"""

from __future__ import annotations

import ipaddress
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import urlsplit

from wakeful.core.spec.notifier import EmailChannel
from wakeful.errors import OperatorError
from wakeful.notifications.messages import Delivered, Message, Refused, Sent, as_text

# The most seconds of each step of the conversation with the server.
STEP_SECONDS = 15.0
_SUBMISSION_PORT = 587
_TLS_PORT = 465


class MailRefused(OperatorError):
    """The server cannot be used. The message has the reason."""


def send_mail(channel: EmailChannel, message: Message, host: str, password: bytes | None) -> Sent:
    """Send an e-mail. Blocking: called in a thread."""
    mail = make_mail(channel, message, host)
    try:
        refused = _deliver(channel, mail, password)
    except (MailRefused, OSError, smtplib.SMTPException) as error:
        return Refused(f"{channel.server}: {_say(error)}")
    words = f"{channel.server} took it for {', '.join(channel.to)}"
    return Delivered(words if not refused else f"{words}; it refused {', '.join(sorted(refused))}")


def make_mail(channel: EmailChannel, message: Message, host: str) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = " ".join(message.title.split())
    mail["From"] = channel.sender
    mail["To"] = ", ".join(channel.to)
    mail["Date"] = formatdate(message.at / 1e6, localtime=False)
    # The same id for every attempt, so that mail programs recognise a duplicate.
    mail["Message-ID"] = f"<{message.id}@{_find_domain(channel.sender)}>"
    # This header keeps automatic responders from answering.
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(f"{as_text(message)}\n\n-- \nwakeful on {host}, notifier {message.notifier}\n")
    return mail


def _deliver(channel: EmailChannel, mail: EmailMessage, password: bytes | None) -> dict[str, tuple[int, bytes]]:
    parts = urlsplit(channel.server)
    host = parts.hostname or ""
    is_local = _is_local(host)
    # Traffic on this machine cannot be intercepted, and local servers have self-signed certificates.
    trusts_any = is_local or not channel.is_tls_needed
    if parts.scheme == "smtps":
        port = parts.port or _TLS_PORT
        with smtplib.SMTP_SSL(host, port, timeout=STEP_SECONDS, context=_make_context(trusts_any)) as client:
            return _hand_over(client, channel, mail, password)
    with smtplib.SMTP(host, parts.port or _SUBMISSION_PORT, timeout=STEP_SECONDS) as client:
        client.ehlo()
        if client.has_extn("starttls"):
            client.starttls(context=_make_context(trusts_any))
            client.ehlo()
        elif not trusts_any:
            raise MailRefused(
                "the server offers no TLS, so nothing was sent; use smtps://, or tls: false if you trust the network"
            )
        return _hand_over(client, channel, mail, password)


def _hand_over(
    client: smtplib.SMTP, channel: EmailChannel, mail: EmailMessage, password: bytes | None
) -> dict[str, tuple[int, bytes]]:
    if channel.user is not None and password is not None:
        client.login(channel.user, password.decode("utf-8", "replace").strip())
    return client.send_message(mail)


def _make_context(trusts_any: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if trusts_any:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _find_domain(address: str) -> str:
    return address.rpartition("@")[2] or "wakeful"


def _say(error: Exception) -> str:
    match error:
        case smtplib.SMTPRecipientsRefused():
            return "; ".join(f"{who}: {_say_answer(code, text)}" for who, (code, text) in error.recipients.items())
        case smtplib.SMTPResponseException():
            return _say_answer(error.smtp_code, error.smtp_error)
        case ssl.SSLError():
            return f"TLS failed: {error.reason or error}"
        case OSError():
            return error.strerror or str(error) or type(error).__name__
        case _:
            return str(error) or type(error).__name__


def _say_answer(code: int, text: bytes | str) -> str:
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return f"{code} {' '.join(shown.split())[:300]}"

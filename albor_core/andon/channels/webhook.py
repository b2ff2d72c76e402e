"""Posts JSON to the address of a webhook, and never to a private address that its name may resolve
to.

The name is resolved once; if one of its addresses is not public nothing is sent, and the connection
goes to a checked address, so that a name with changing answers gains nothing. TLS is checked
against the name. Redirects are not followed, proxies of the environment are not used, TIMEOUT_S
bounds the whole request and MOST_BYTES the answer. The URL is a secret: no error repeats any of
it.
"""

from __future__ import annotations

import io
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit

from albor_core.andon.channels.delivery_error import DeliveryError
from albor_core.run.values.clean import MARK, clean
from albor_core.run.values.webhook_url import url_problem

TIMEOUT_S = 5.0
MOST_BYTES = 64 << 10
_SAID = 200  # characters of a refusal that are repeated
_LONGEST_WAIT_S = 3600.0
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_PORTS = {"https": 443, "http": 80}
_LATER = (408, 425, 429)  # the receiver would take it another time

Resolver = Callable[[str, int], Sequence[str]]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class WebhookAnswer:
    """The answer of the receiver."""

    status: int
    seconds: float


def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def _head(parts: SplitResult, host: str, port: int, size: int) -> bytes:
    """The lines of a request before its body."""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shown = f"[{host}]" if ":" in host else host
    place = "" if port == _PORTS[parts.scheme] else f":{port}"
    return (
        f"POST {path} HTTP/1.1\r\nHost: {shown}{place}\r\n"
        "User-Agent: albor\r\nContent-Type: application/json\r\nAccept: */*\r\n"
        f"Content-Length: {size}\r\nConnection: close\r\n\r\n"
    ).encode("ascii")


def post_json(
    url: str,
    body: bytes,
    *,
    allow_http: bool = False,
    allow_private: bool = False,
    resolver: Resolver = resolve,
    tls: ssl.SSLContext | None = None,
) -> WebhookAnswer:
    """Post the body once; return the answer if it is 2xx. Raises DeliveryError."""
    if why := url_problem(url, allow_http=allow_http):
        raise DeliveryError(f"its URL {why}", is_final=True)
    began = time.monotonic()
    deadline = began + TIMEOUT_S
    parts = urlsplit(url)
    host, port = cast(str, parts.hostname), parts.port or _PORTS[parts.scheme]
    addresses = _allowed(host, port, resolver, allow_private=allow_private)
    head = _head(parts, host, port, len(body))
    try:
        with _connected(addresses, port, deadline) as plain:
            sock = plain
            if parts.scheme == "https":
                context = tls or ssl.create_default_context()
                _limit(plain, deadline)
                sock = context.wrap_socket(plain, server_hostname=host)
            with sock:
                _limit(sock, deadline)
                sock.sendall(head + body)
                raw = _read(sock, deadline)
    except TimeoutError:
        raise DeliveryError(f"no answer within {TIMEOUT_S:g} s") from None
    except ssl.SSLCertVerificationError as error:
        told = error.verify_message
        why = "it is for another name" if host in told else told
        raise DeliveryError(f"its certificate is not valid: {why}") from None
    except ssl.SSLError as error:
        raise DeliveryError(f"no TLS connection: {error.reason or 'broken'}") from None
    except OSError as error:
        raise DeliveryError(f"no connection: {error.strerror or type(error).__name__}") from None
    _raise_refusal(raw, url)
    return WebhookAnswer(_parsed(raw).status, time.monotonic() - began)


def literal_problem(host: str, *, allow_private: bool) -> str:
    """The reason why nothing is sent to a host that is written as an address; "" if it is allowed,
    or if its name has to be resolved first.
    """
    if host == "localhost":
        host = "127.0.0.1"
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    return _why_not(host, allow_private=allow_private)


def _allowed(host: str, port: int, resolver: Resolver, *, allow_private: bool) -> list[str]:
    """All addresses of the host, if each is allowed. Raises DeliveryError."""
    try:
        addresses = list(resolver(host, port))
    except (OSError, UnicodeError):
        raise DeliveryError("the name of its host cannot be resolved") from None
    if not addresses:
        raise DeliveryError("the name of its host has no address")
    for text in addresses:
        if why := _why_not(text, allow_private=allow_private):
            raise DeliveryError(why, is_final=True)
    return addresses


def _why_not(text: str, *, allow_private: bool) -> str:
    """The reason why nothing is sent to an address; "" if it is allowed."""
    try:
        address = _meant(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return "the name of its host has an address that cannot be read"
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return f"it leads to {address}, which no webhook has"
    if address.is_global or allow_private:
        return ""
    return f"it leads to {address}, a private address; allow_private: true would permit it"


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo is not None:
        inner = address.teredo[1]
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address if inner is None else inner


def _connected(addresses: Sequence[str], port: int, deadline: float) -> socket.socket:
    """A connection to the first address that accepts one. Raises OSError."""
    refusal: OSError = OSError("no address")
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            _limit(sock, deadline)
            sock.connect((address, port))
            return sock
        except TimeoutError:
            sock.close()
            raise
        except OSError as error:
            sock.close()
            refusal = error
    raise refusal


def _limit(sock: socket.socket, deadline: float) -> None:
    """Set the socket's timeout to the time that is left. Raises TimeoutError."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    sock.settimeout(left)


def _read(sock: socket.socket, deadline: float) -> bytes:
    """Read an answer up to its end, MOST_BYTES or the deadline; of a successful one the head is
    enough.

    Raises OSError if not even the head arrived.
    """
    raw = b""
    while len(raw) < MOST_BYTES:
        head, found, _ = raw.partition(b"\r\n\r\n")
        if found and head[:12].split()[1:2] != [b"100"] and 200 <= _parsed(raw).status < 300:
            return raw
        try:
            _limit(sock, deadline)
            piece = sock.recv(min(16384, MOST_BYTES - len(raw)))
        except OSError:
            if b"\r\n\r\n" in raw:
                return raw
            raise
        if not piece:
            return raw
        raw += piece
    return raw


class _Received:
    """Received bytes as the socket that http.client reads from."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, *_: Any, **__: Any) -> io.BytesIO:
        return io.BytesIO(self._raw)


def _parsed(raw: bytes) -> HTTPResponse:
    """The parsed answer. Raises DeliveryError."""
    response = HTTPResponse(cast(socket.socket, _Received(raw)), method="POST")
    try:
        response.begin()
    except (HTTPException, ValueError, OSError):
        raise DeliveryError("its answer is not HTTP") from None
    return response


def _raise_refusal(raw: bytes, url: str) -> None:
    """Raise DeliveryError, unless the answer is 2xx."""
    response = _parsed(raw)
    status = response.status
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        why = f"answered {status}; redirects are not followed"
        raise DeliveryError(why, is_final=True)
    said = b""
    with suppress(HTTPException, ValueError, OSError):
        said = response.read(4 * _SAID)
    words = _without(url, clean(said.decode(errors="replace").strip(), limit=4 * _SAID))
    why = f"answered {status}" + (f": {clean(words, limit=_SAID)}" if words else "")
    is_final = 400 <= status < 500 and status not in _LATER
    raise DeliveryError(why, is_final=is_final, retry_after_s=_seconds(response))


def _without(url: str, text: str) -> str:
    """The text of a refusal without parts of the URL that it may repeat."""
    parts = urlsplit(url)
    words = {url, parts.path, parts.query, *parts.path.split("/"), *parts.query.split("&")}
    words |= {word.partition("=")[2] for word in parts.query.split("&")}
    words |= {unquote(word) for word in words} | {parts.netloc, parts.hostname or ""}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, MARK) if len(word) > 3 else text
    return text


def _seconds(response: HTTPResponse) -> float:
    """The seconds of Retry-After, if it is a number."""
    told = response.getheader("Retry-After", "").strip()
    return min(float(told), _LONGEST_WAIT_S) if told.isascii() and told.isdigit() else 0.0

"""Posts one OTLP document. Redirects are not followed, so that headers go nowhere else; no error
repeats anything of the URL or the headers, which are taken out of what a collector says, too.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from albor_core.run.values.clean import MARK, clean
from albor_core.run.values.lenient import Document, finite_of, mapping_of, parsed, text_of
from albor_core.run.values.redact import redact_text
from albor_core.store.spans.collector import Collector

_LATER = (429, 502, 503, 504)  # as the protocol has it: the same again, after a while
_MOST_BYTES = 1 << 20  # a message may name each of the spans that it is about
_LONGEST_WAIT_S = 300.0
_MOST_COUNT = 1 << 62
_MOST_READ, _MOST_SAID = 4096, 160  # characters of a reason
_TITLE = re.compile(r"<title[^>]{0,256}>([^<]{0,512})<", re.IGNORECASE)
_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<[a-z!?]", re.IGNORECASE)  # no message of protobuf does
_PAGES = ("text/html", "application/xhtml+xml")
_GZIP = b"\x1f\x8b"
_NO_COLLECTOR = "the answer is a web page, not a collector's"  # as final as a 404
_CUT_OFF = "its answer was cut off"
_UNREADABLE = "its answer cannot be unpacked"
_PART = re.compile(r"[/&=?]")
_LEAST_SECRET = 4  # of fewer characters, a word of any answer may be one by chance
_NO_SECRETS = ("bearer", "basic", "token", "traces")


@dataclass(frozen=True)
class Taken:
    """A batch that arrived. `refused` of its spans were not accepted, and may not be sent again;
    `said` is why, or where that is 0 a warning: the collector's, or that its answer did not come
    whole; "" where there are no words.
    """

    refused: int = 0
    said: str = ""


@dataclass
class PostError(Exception):
    """`is_final`: the same batch would be refused again. `retry_after_s`: as it was asked."""

    why: str
    is_final: bool = False
    retry_after_s: float = 0.0


class _Answer(NamedTuple):
    head: http.client.HTTPResponse
    body: bytes
    is_whole: bool


def post_spans(collector: Collector, body: bytes) -> Taken:
    """Post it once. Raises PostError."""
    answer = _answer(collector, body)
    head = answer.head
    said, flaw = _unpacked(answer)
    is_good = 200 <= head.status < 300
    is_page = head.headers.get_content_type() in _PAGES or _PAGE.match(said)
    if is_good and not is_page:
        return _taken(said, collector, flaw)
    what = _NO_COLLECTOR if is_good else f"the collector answered {head.status}"
    reason = _reason(said, collector)
    wait = head.getheader("Retry-After", "").strip()
    raise PostError(
        what + (f": {reason}" if reason else ""),
        is_final=head.status not in _LATER,
        retry_after_s=min(float(wait), _LONGEST_WAIT_S) if wait.isdecimal() else 0.0,
    )


def _answer(collector: Collector, body: bytes) -> _Answer:
    """Whatever comes back. Raises PostError where that is nothing."""
    parts = urlsplit(collector.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    deadline = time.monotonic() + collector.timeout_s
    connection = kind(parts.hostname or "", parts.port, timeout=collector.timeout_s)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"User-Agent": "albor", **collector.headers, "Content-Type": "application/json"}
    try:
        connection.request("POST", path, body, headers)
        return _read(connection.getresponse(), connection.sock, deadline)
    except TimeoutError:
        raise PostError(f"no answer within {collector.timeout_s:g} s") from None
    except ssl.SSLError:
        raise PostError("no TLS connection") from None
    except (ConnectionResetError, BrokenPipeError):  # RemoteDisconnected is one, too
        raise PostError("the collector closed the connection without an answer") from None
    except OSError as error:
        why = f": {error.strerror}" if error.strerror else ""
        raise PostError(f"no connection{why}") from None
    except (ValueError, http.client.InvalidURL):  # what no request may hold
        raise PostError("the request cannot be made", is_final=True) from None
    except http.client.HTTPException:
        raise PostError("the collector answered something that is not HTTP") from None
    finally:
        connection.close()


def _read(head: http.client.HTTPResponse, sock: socket.socket | None, deadline: float) -> _Answer:
    """The answer with its body, which is whole also where we stop at our bound.

    A collector that sends byte by byte is given up at the deadline. Raises OSError.
    """
    raw = b""
    while len(raw) < _MOST_BYTES:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        if sock is not None and sock.fileno() >= 0:
            sock.settimeout(left)
        try:
            piece = head.read1(4096)
        except (http.client.IncompleteRead, ConnectionError):  # the head has said what counts
            return _Answer(head, raw, False)
        if not piece:
            return _Answer(head, raw, not head.length)  # what is left of a length that was told
        raw += piece
    return _Answer(head, raw, True)


def _unpacked(answer: _Answer) -> tuple[bytes, str]:
    """The body without its gzip, as far as our bound, and what is wrong with it; "" for nothing.

    Some call gzip what is none: that is taken as it stands.
    """
    raw, flaw = answer.body, "" if answer.is_whole else _CUT_OFF
    encoding = (answer.head.getheader("Content-Encoding") or "").strip().lower()
    if encoding not in ("gzip", "x-gzip") or not raw.startswith(_GZIP):
        return raw, flaw
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        said = unpacker.decompress(raw, _MOST_BYTES)
    except zlib.error:
        return b"", flaw or _UNREADABLE
    is_bounded = len(said) == _MOST_BYTES or len(raw) >= _MOST_BYTES
    return said, flaw if unpacker.eof or is_bounded else _CUT_OFF


def _taken(said: bytes, collector: Collector, flaw: str) -> Taken:
    """What `partialSuccess` says; an answer that cannot be read took all. `flaw` is told where the
    collector has no words of its own.
    """
    told: Document = {}
    with suppress(ValueError, RecursionError):
        told = mapping_of(mapping_of(json.loads(said)).get("partialSuccess"))
    refused = _count(told.get("rejectedSpans"))
    text = _safe(text_of(told.get("errorMessage")) or "", collector)
    return Taken(refused, text or ("" if refused else flaw))


def _count(said: object) -> int:
    """An int64 as JSON of protobuf has it, which is a text or a number; 0 for anything else."""
    number = parsed(said) if isinstance(said, str) else finite_of(said)
    return int(number) if number is not None and 0 < number <= _MOST_COUNT else 0


def _reason(said: bytes, collector: Collector) -> str:
    """Why a collector refused, in its own words: of JSON the message, of a page the title; "" where
    it gave none that can be read.
    """
    try:
        text = said.decode()[:_MOST_READ]
    except UnicodeDecodeError:
        return ""
    with suppress(ValueError, RecursionError):
        found = mapping_of(json.loads(said))
        inner = found.get("error")
        text = text_of(found.get("message")) or text_of(mapping_of(inner).get("message")) or ""
        text = (text or text_of(inner) or "")[:_MOST_READ]
    if text.lstrip().startswith("<"):
        title = _TITLE.search(text)
        text = title[1] if title else ""
    text = " ".join(text.split())
    return _safe(text, collector) if text.isprintable() else ""  # a message of protobuf is not


def _safe(text: str, collector: Collector) -> str:
    """Words of a collector as they may be told: one short line without secrets."""
    line = " ".join(text[:_MOST_READ].split())
    safe = redact_text(line, os.environ, _secrets(collector))
    return "" if safe == MARK else clean(safe, limit=_MOST_SAID)


def _secrets(collector: Collector) -> tuple[str, ...]:
    """What a reason may not repeat: values of headers, words in them, and parts of the URL."""
    parts = urlsplit(collector.url)
    words = [*_PART.split(parts.path), *_PART.split(parts.query)]
    for value in collector.headers.values():
        words += [value, *value.split()]
    found = {*words, *map(unquote, words)}
    return tuple(w for w in found if len(w) >= _LEAST_SECRET and w.lower() not in _NO_SECRETS)

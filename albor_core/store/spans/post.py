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
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from albor_core.run.values.clean import clean
from albor_core.run.values.lenient import Document, finite_of, mapping_of, parsed, text_of
from albor_core.run.values.redact import MARK, redact_text
from albor_core.store.spans.collector import Collector

_LATER = (429, 502, 503, 504)  # as the protocol has it: the same again, after a while
_MOST_BYTES = 1 << 20  # a message may name each of the spans that it is about
_LONGEST_WAIT_S = 300.0
_MOST_COUNT = 1 << 62
_MOST_READ, _MOST_SAID = 4096, 160  # characters of a reason
_TITLE = re.compile(r"<title[^>]{0,256}>([^<]{0,512})<", re.IGNORECASE)
_PART = re.compile(r"[/&=?]")
_LEAST_SECRET = 4  # of fewer characters, a word of any answer may be one by chance
_NO_SECRETS = ("bearer", "basic", "token", "traces")


@dataclass(frozen=True)
class Taken:
    """A batch that arrived. `refused` of its spans were not accepted, and may not be sent again;
    `said` is why, or where that is 0 a warning of the collector; "" where it gave no words.
    """

    refused: int = 0
    said: str = ""


@dataclass
class PostError(Exception):
    """`is_final`: the same batch would be refused again. `retry_after_s`: as it was asked."""

    why: str
    is_final: bool = False
    retry_after_s: float = 0.0


def post_spans(collector: Collector, body: bytes) -> Taken:
    """Post it once. Raises PostError."""
    parts = urlsplit(collector.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    deadline = time.monotonic() + collector.timeout_s
    connection = kind(parts.hostname or "", parts.port, timeout=collector.timeout_s)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"User-Agent": "albor", **collector.headers, "Content-Type": "application/json"}
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        said = _read(answer, connection.sock, deadline)
    except TimeoutError:
        raise PostError(f"no answer within {collector.timeout_s:g} s") from None
    except ssl.SSLError:
        raise PostError("no TLS connection") from None
    except (OSError, http.client.HTTPException) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise PostError(f"no connection: {why or type(error).__name__}") from None
    except ValueError:  # what no request may hold
        raise PostError("the request cannot be made", is_final=True) from None
    finally:
        connection.close()
    if 200 <= answer.status < 300:
        return _taken(said, collector)
    wait = answer.getheader("Retry-After", "").strip()
    reason = _reason(said, collector)
    raise PostError(
        f"the collector answered {answer.status}" + (f": {reason}" if reason else ""),
        is_final=answer.status not in _LATER,
        retry_after_s=min(float(wait), _LONGEST_WAIT_S) if wait.isdecimal() else 0.0,
    )


def _read(answer: http.client.HTTPResponse, sock: socket.socket | None, deadline: float) -> bytes:
    """A collector that sends byte by byte is given up at the deadline. Raises OSError."""
    raw = b""
    while len(raw) < _MOST_BYTES:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        if sock is not None and sock.fileno() >= 0:
            sock.settimeout(left)
        piece = answer.read1(4096)
        if not piece:
            break
        raw += piece
    return raw


def _taken(said: bytes, collector: Collector) -> Taken:
    """What `partialSuccess` says; an answer that cannot be read took all."""
    told: Document = {}
    with suppress(ValueError, RecursionError):
        told = mapping_of(mapping_of(json.loads(said)).get("partialSuccess"))
    text = text_of(told.get("errorMessage")) or ""
    return Taken(_count(told.get("rejectedSpans")), _safe(text, collector))


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

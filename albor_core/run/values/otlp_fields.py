"""What is wrong with the endpoint and the headers of an OTLP collector. Headers are secrets: no
word here repeats a value.
"""

from __future__ import annotations

import re

from albor_core.run.values.webhook_url import url_problem

MOST_HEADERS = 32
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_OURS = ("content-type", "content-length", "host", "transfer-encoding", "connection")


def endpoint_problem(url: str) -> str:
    """Why nothing can be sent there, as the end of a sentence about it; "" where nothing is."""
    why = url_problem(url, allow_http=True)  # collectors stand beside what they collect of
    return why.replace("must begin with https://", "must begin with http:// or https://")


def header_problem(name: str, value: str) -> str:
    """The same of a header."""
    if not _NAME.fullmatch(name) or name.lower() in _OURS:
        return "cannot be a header of such a request"
    if not value or not value.isascii() or not value.isprintable() or len(value) > 4096:
        return "has no value that a header may have: printable ASCII, at most 4096 characters"
    return ""

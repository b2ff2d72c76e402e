"""What is wrong with the address of a webhook. It is a secret: no word here repeats any of it."""

from __future__ import annotations

from urllib.parse import urlsplit

LONGEST = 2048
HIDDEN = "hidden"
"""Stands where an address was, in what is kept of a config."""
_HTTP = "begins with http://, which anyone on the way can read: use https://, or allow_http: true"


def url_problem(url: str, *, allow_http: bool = False) -> str:
    """Why nothing can be sent there, as the end of a sentence about it; "" where nothing is wrong
    with the text.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return "has a space, a backslash or another character that no URL has"
    if len(url) > LONGEST:
        return f"is longer than {LONGEST} characters"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme == "http" and not allow_http:
        return _HTTP
    if parts.scheme not in ("https", "http"):
        return "must begin with https://"
    if not host or port == 0:
        return "has no host"
    if parts.username is not None or parts.password is not None:
        return "has a user or a password before its host, which is not supported"
    return ""

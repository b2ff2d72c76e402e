"""Finds personal data in text by its shape and check digits: e-mail addresses, phone numbers,
public IPv4 addresses, IBANs, credit cards.

Precision before recall, as for secrets: most numbers in code are not personal. Reserved domains and
networks, fictitious and test numbers, versions and object identifiers are not reported.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from albor_core.data.clean.patterns.findings import Finding, Scanner

# --- e-mail -------------------------------------------------------------------------------------

_DOMAIN = re.compile(rb"@([A-Za-z0-9][A-Za-z0-9.-]{2,252}+)")
_LOCAL = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-"
_LONGEST_LOCAL = 64  # RFC 5321, 4.5.3.1.1
_URL_WINDOW = 96
_ROLES = frozenset(
    b"git hg svn noreply no-reply donotreply do-not-reply user username foo bar someone you your "
    b"me name email your.name".split()
)
_RESERVED = (b"example.com", b"example.org", b"example.net", b"example.edu",
             b"users.noreply.github.com", b"domain.com", b"email.com", b"foo.com", b"bar.com",
             b"test.com")  # fmt: skip
_TOP = frozenset(
    b"com org net edu gov mil int info biz name pro aero museum dev app tech online site xyz club "
    b"blog cloud email digital agency studio systems network software space world today life live "
    b"company group global solutions services science academy ac ad ae af ag ai al am ao ar at au "
    b"aw az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca cc cd cf cg ch ci cl cm cn co "
    b"cr cu cv cy cz de dj dk dm do dz ec ee eg es et eu fi fj fm fo fr ga gd ge gh gi gl gm gn gr "
    b"gt gy hk hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg kh kr kw ky kz la lb lc "
    b"li lk lr ls lt lu lv ly ma mc md me mg mk ml mm mn mo mr mt mu mv mw mx my mz na ne ng ni nl "
    b"no np nu nz om pa pe pf pg ph pk pl pr ps pt pw py qa ro rs ru rw sa sc sd se sg si sk sl sm "
    b"sn so sr su sv sy sz tc td tg th tj tk tl tm tn to tr tt tv tw tz ua ug uk us uy uz va vc ve "
    b"vg vi vn vu ws ye za zm zw".split()
)


def _emails(text: bytes) -> Iterator[Finding]:
    for match in _DOMAIN.finditer(text):
        domain = match[1].rstrip(b".-")
        at = match.start()
        left = text[max(0, at - _LONGEST_LOCAL - 1) : at]
        local = left[len(left.rstrip(_LOCAL)) :].lstrip(b"._%+-")
        if not 0 < len(local) <= _LONGEST_LOCAL or local.lower() in _ROLES:
            continue
        end = match.start(1) + len(domain)
        start = at - len(local)
        if _is_mail_domain(domain.lower()) and text[end : end + 1] not in (b"(", b"[", b"_", b"="):
            words = text[max(0, start - _URL_WINDOW) : start].split()
            if not (words and text[start - 1 : start].strip() and b"://" in words[-1]):
                yield Finding(start, end, "email")


def _is_mail_domain(domain: bytes) -> bool:
    labels = domain.split(b".")
    return (
        len(labels) > 1
        and labels[-1] in _TOP
        and labels[0] != b"self"
        and all(0 < len(one) < 64 and one[:1] != b"-" != one[-1:] for one in labels)
        and not domain.endswith(_RESERVED)
    )


# --- phone --------------------------------------------------------------------------------------

_INTERNATIONAL = re.compile(rb"\+([1-9][0-9 ().-]{6,22}+)")
_AMERICAN = re.compile(
    rb"\(([2-9][0-9]{2})\)(?: |-)?([2-9][0-9]{2})[-. ]([0-9]{4})(?![\w-])"
    rb"|(?<![\w.+/:-])([2-9][0-9]{2})([-. ])([2-9][0-9]{2})\5([0-9]{4})(?![\w-]|\.[0-9])"
)
_PHONE_WORD = re.compile(
    rb"(?i)\b(?<!<)(?:phone|tel|telephone|mobile|cell|fax|call|whatsapp|sms|contact)"
)
# A mask that an earlier run left is not such a word: hence the looks for "<" before it.
_NEAR = 40  # bytes to the left in which a word tells what a number is
_COUNTRY = re.compile(
    rb"1|7|2(?:0|7|1[1-368]|[2-69][0-9])|3(?:[0-469]|[578][0-9])|4(?:[013-9]|2[013])"
    rb"|5(?:[1-8]|0[0-9]|9[0-9])|6(?:[0-6]|[7-9][0-9])|8(?:[1246]|5[02356]|80|86)|9(?:[0-58]|6[0-9]|7[0-9]|9[2-68])"
)
_GROUPS = re.compile(rb"[ ().-]++")


def _phones(text: bytes) -> Iterator[Finding]:
    for match in _INTERNATIONAL.finditer(text):
        number = match[1].rstrip(b" ().-")
        end = match.start(1) + len(number)
        if _is_international(number, text, match.start(), end):
            yield Finding(match.start(), end, "phone")
    for match in _AMERICAN.finditer(text):
        area, exchange, last = [part for part in match.groups() if part and part.isdigit()]
        if exchange == b"555" or area == b"555":  # fiction
            continue
        separator = match[5]
        odd = any(int(part) % 2 for part in (area, exchange, last))  # 256-512-1024 are sizes
        if (
            separator is None
            or (separator == b"-" and odd)
            or _PHONE_WORD.search(text[max(0, match.start() - _NEAR) : match.start()])
        ):
            yield Finding(match.start(), match.end(), "phone")


def _stands_alone(before: bytes, after: bytes) -> bool:
    """Whether a number is not part of a word, a formula or a path."""
    if before.isalnum() or after.isalnum() or after == b"_":
        return False
    return before not in (b"_", b")", b"]", b"+", b"=", b"*", b".", b"/")


def _is_international(number: bytes, text: bytes, start: int, end: int) -> bool:
    groups = _GROUPS.split(number)
    digits = b"".join(groups)
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    if not 8 <= len(digits) <= 15 or not _COUNTRY.match(digits):
        return False
    if not _stands_alone(before, after):
        return False
    if digits[:1] == b"1" and (len(digits) != 11 or b"555" in (digits[1:4], digits[4:7])):
        return False
    if len(groups) == 1:
        near = _PHONE_WORD.search(text[max(0, start - _NEAR) : start])
        return len(digits) >= 10 and (before in (b'"', b"'", b":", b">") or near is not None)
    separators = {one.strip(b"()") or b"()" for one in re.findall(rb"[ ().-]+", number)}
    return (
        len(groups) >= 3
        and all(len(group) > 1 for group in groups[1:])
        and all(len(one.strip()) < 2 for one in separators)
    )


# --- IPv4 ---------------------------------------------------------------------------------------

_ADDRESS = re.compile(
    rb"(?<![\w.-])[0-9]{1,3}+\.[0-9]{1,3}+\.[0-9]{1,3}+\.[0-9]{1,3}+(?![\w-]|\.[0-9]|/[0-9])"
)
_VERSION_WORD = re.compile(
    rb"(?i)(?:ver|version|release|build|oid|identifier|[=<>~!^]=|[a-z]/|\bv\.?)[\s\"':=(]*$"
)
_CHANGE_WORD = re.compile(rb"(?i)upgrad|updat|patch|bump")
_ADDRESS_WORD = re.compile(
    rb"(?i)(?:\b(?<!<)ip|(?<!<IP_)addr|host|server|client|://)[\w\s\"':=(/@]*$"
)
_NUMBER = re.compile(rb"[0-9.-]++")
_SMALL = 32  # four numbers below are a version or an object identifier far more often
_OID_ARCS = 2  # the first number of an object identifier
_WELL_KNOWN = frozenset(
    (b"1.2.3.4", b"4.2.2.2", b"4.4.4.4", b"8.8.8.8", b"8.8.4.4", b"1.1.1.1", b"9.9.9.9",
     b"208.67.222.222", b"208.67.220.220", b"123.123.123.123")
)  # fmt: skip
"""Public resolvers, and what stands for any address in documentation."""


def _addresses(text: bytes) -> Iterator[Finding]:
    for match in _ADDRESS.finditer(text):
        octets = match[0].split(b".")
        if any(int(one) > 255 or (one[:1] == b"0" and one != b"0") for one in octets):
            continue
        address = ipaddress.IPv4Address(match[0].decode())
        if not address.is_global or address.is_multicast or match[0] in _WELL_KNOWN:
            continue
        left = text[max(0, match.start() - _NEAR) : match.start()].rsplit(b"\n", 1)[-1]
        if _VERSION_WORD.search(left) or _is_among_numbers(text, match.start(), match.end()):
            continue
        is_plain = (
            max(map(int, octets)) >= _SMALL
            and int(octets[0]) > _OID_ARCS
            and not _CHANGE_WORD.search(left)
        )
        if is_plain or _ADDRESS_WORD.search(left):
            yield Finding(match.start(), match.end(), "ip-address")


def _is_among_numbers(text: bytes, start: int, end: int) -> bool:
    """Whether a neighbour is a decimal number, as in the path of a drawing."""
    before = text[max(0, start - _NEAR) : start].split(b" ")[-2:-1]
    after = text[end : end + _NEAR].split(b" ", 2)[1:2]
    beside = [one.strip(b",-") for one in (*before, *after)]
    return any(one.count(b".") not in (0, 3) and _NUMBER.fullmatch(one) for one in beside)


# --- IBAN ---------------------------------------------------------------------------------------

_IBAN = re.compile(rb"[A-Z]{2}(?<![A-Za-z0-9]..)[0-9]{2}(?= ?[A-Z0-9])", re.DOTALL)
_IBAN_LENGTHS = {
    name[:2]: int(name[2:])
    for name in (
        b"AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 "
        b"DO28 EE20 EG29 ES24 FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 "
        b"IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 MC27 MD24 ME22 MK19 MR27 "
        b"MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SC31 SE24 SI19 SK24 SM27 "
        b"ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 "
    ).split()
}
"""Characters by country: the IBAN registry (ISO 13616)."""


def _ibans(text: bytes) -> Iterator[Finding]:
    for match in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(match[0][:2])
        if length is None:
            continue
        for whole in (length, length + (length - 1) // 4):  # as one word, or in groups of four
            end = match.start() + whole
            found = text[match.start() : end]
            number = found.replace(b" ", b"") if whole > length else found
            is_spaced = found[4::5] == b" " * (whole - length)
            if (
                len(number) == length
                and (whole == length or is_spaced)
                and number.isalnum()
                and not text[end : end + 1].isalnum()
                and is_iban(number)
            ):
                yield Finding(match.start(), end, "iban")
                break


def is_iban(number: bytes) -> bool:
    """Whether its check digits are right: ISO 7064, mod 97-10, over letters as two digits."""
    turned = (number[4:] + number[:4]).decode("ascii", "replace")
    try:
        return int("".join(str(int(one, 36)) for one in turned)) % 97 == 1
    except ValueError:
        return False


# --- credit cards -------------------------------------------------------------------------------

_CARD = re.compile(
    rb"[0-9](?<![\w.+-].)(?:[0-9]{12,18}+|[0-9]{3}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{4}"
    rb"|[0-9]{3}([ -])[0-9]{6}\2[0-9]{5})(?![\w-]|\.[0-9])",
    re.DOTALL,
)
_NETWORK = re.compile(
    rb"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|2(?:22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)"
    rb"[0-9]{12}|3[47][0-9]{13}|6(?:011|5[0-9]{2}|4[4-9][0-9])[0-9]{12}|3(?:0[0-5]|[68][0-9])[0-9]{11}"
    rb"|35(?:2[89]|[3-8][0-9])[0-9]{12})"
)
_CARD_WORD = re.compile(rb"(?i)(?<!<)card|visa|amex|credit|payment|\bpan\b|\bcc\b")
_HEX_BEFORE, _HEX_AFTER = re.compile(rb"[0-9A-Fa-f][\s,]$"), re.compile(rb"[\s,][0-9A-F]")
_TEST_CARDS = frozenset(
    (b"4242424242424242", b"4012888888881881", b"4000056655665556", b"5555555555554444",
     b"2223003122003222", b"5200828282828210", b"5105105105105100", b"378282246310005",
     b"371449635398431", b"378734493671000", b"6011111111111117", b"6011000990139424",
     b"3056930009020004", b"30569309025904", b"38520000023237", b"3566002020360505",
     b"3530111333300000", b"4222222222222")
)  # fmt: skip
"""Those that payment providers publish for tests, beside the ones of few different digits."""


def _cards(text: bytes) -> Iterator[Finding]:
    for match in _CARD.finditer(text):
        number = match[0].translate(None, b" -")
        is_grouped = len(number) < len(match[0])
        if not _NETWORK.fullmatch(number) or not passes_luhn(number):
            continue
        if number in _TEST_CARDS or len(set(number)) < 4:
            continue
        left = text[max(0, match.start() - 2 * _NEAR) : match.start()]
        right = text[match.end() : match.end() + 2]
        is_in_table = _HEX_BEFORE.search(left) or _HEX_AFTER.match(right)
        if _CARD_WORD.search(left) or (is_grouped and not is_in_table):
            yield Finding(match.start(), match.end(), "card")


def passes_luhn(number: bytes) -> bool:
    """Whether its check digit is right, ISO/IEC 7812-1, annex B: every second digit from the right
    doubled, the sum ends in 0."""
    digits = [code - 48 for code in reversed(number)]
    return (sum(digits[::2]) + sum(2 * d - 9 * (d > 4) for d in digits[1::2])) % 10 == 0


PERSONAL = (
    Scanner((r"[A-Za-z0-9_%+.-]@[A-Za-z0-9]",), _emails),
    Scanner((r"[A-Z]{2}[0-9]{2} ?[A-Z0-9]{4} ?[A-Z0-9]{4}",), _ibans),
    Scanner(
        (r"[0-9]{13}|[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}|[0-9]{4}[ -][0-9]{6}[ -][0-9]{5}",), _cards
    ),
    Scanner(
        (
            r"\+[1-9][0-9 ().-]{6}|[2-9][0-9]{2}[-. ][0-9]{3}[-. ][0-9]{4}"
            r"|\([2-9][0-9]{2}\)[ -]?[0-9]{3}",
        ),
        _phones,
    ),
    Scanner((r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]",), _addresses),
)
"""In the order in which overlapping findings win."""

"""What is found in text and what is left alone. Keys are drawn at random: none is anybody's."""

from __future__ import annotations

import base64
import json
import random
import re
import string
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albor_core.data.clean import generated
from albor_core.data.clean.patterns import personal_patterns, secret_patterns
from albor_core.data.clean.patterns.findings import Finding, Scanner, findings, masked
from albor_core.data.clean.patterns.personal_patterns import PERSONAL, is_iban, passes_luhn
from albor_core.data.clean.patterns.secret_patterns import SECRETS

DRAW = random.Random(7)
ALNUM = string.ascii_letters + string.digits
BASE32 = string.ascii_uppercase + "234567"


def drawn(n, letters=ALNUM):
    """At least one digit and one letter of each case that `letters` has."""
    while True:
        word = "".join(DRAW.choices(letters, k=n))
        needed = [
            kind for kind in (str.isdigit, str.isupper, str.islower) if any(map(kind, letters))
        ]
        if all(any(map(kind, word)) for kind in needed) and sum(map(str.isdigit, word)) > 1:
            return word


def b64(document):
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def pem(kind, end="\n", size=400):
    body = base64.b64encode(DRAW.randbytes(size)).decode()
    lines = end.join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN {kind}-----{end}{lines}{end}-----END {kind}-----"


HEX = "0123456789abcdef"
SECRET_TEXTS = [
    ("aws-key", "aws_access_key_id = {}", "AK" + "IA" + drawn(16, BASE32)),
    ("aws-key", "key: {}\n", "AS" + "IA" + drawn(16, BASE32)),
    ("github-token", "git clone https://{}@github.com/a/b", "gh" + "p_" + drawn(36)),
    ("github-token", "TOKEN={}", "github" + "_pat_" + drawn(22) + "_" + drawn(59)),
    ("gitlab-token", "'{}'", "gl" + "pat-" + drawn(20)),
    ("slack-token", 'slack("{}")', "xo" + "xb-" + drawn(12, "0123456789") + "-" + drawn(24)),
    ("slack-webhook", "https://{}", "hooks.slack" + ".com/services/T" + drawn(9, BASE32) + "/B"
     + drawn(9, BASE32) + "/" + drawn(24)),
    ("openai-key", "openai.api_key = '{}'", "s" + "k-" + drawn(48)),
    ("openai-key", "export KEY={}\n", "s" + "k-proj-" + drawn(64)),
    ("openai-key", "{}", "s" + "k-ant-" + drawn(80)),
    ("stripe-key", "stripe.api_key = '{}'", "sk_" + "live_" + drawn(24)),
    ("google-key", "?key={}&q=1", "AI" + "za" + drawn(35)),
    ("huggingface-token", 'login(token="{}")', "h" + "f_" + drawn(34)),
    ("npm-token", "//registry/:_authToken={}", "np" + "m_" + drawn(36)),
    ("pypi-token", "password: {}", "pypi" + "-AgE" + drawn(120)),
    ("sendgrid-key", "{}", "S" + "G." + drawn(22) + "." + drawn(43)),
    ("jwt", "Authorization: Bearer {}", b64({"alg": "HS256", "typ": "JWT"}) + "."
     + b64({"sub": "1", "name": "x"}) + "." + drawn(43)),
    ("private-key", "x = '''{}'''", pem("RSA PRIVATE KEY")),
    ("private-key", "{}\n", pem("PRIVATE KEY")),
    ("private-key", '"private_key": "{}"', pem("EC PRIVATE KEY", "\\n", 120)),
    ("private-key", "{}", pem("OPENSSH PRIVATE KEY")),
    ("private-key", "{}", pem("PGP PRIVATE KEY BLOCK")),
    ("assigned-secret", "aws_secret_access_key = {}\n", drawn(40, ALNUM + "+/")),
    ("assigned-secret", 'API_KEY = "{}"', drawn(32)),
    ("assigned-secret", "'secretKey': '{}',", drawn(24)),
    ("assigned-secret", 'os.environ["DB_PASSWORD"] = "{}"', drawn(24)),
    ("assigned-secret", "client_secret: {}\n", drawn(32, HEX)),
    ("assigned-secret", "auth_token => '{}'", drawn(40, HEX)),
]  # fmt: skip
NO_SECRETS = [
    "aws_access_key_id = " + "AK" + "IAIOSFODNN7EXAMPLE",
    "AK" + "IA" + "A" * 16,
    "x" + "AK" + "IA" + drawn(16, BASE32),
    "AK" + "IA" + drawn(20, BASE32),
    "gh" + "p_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "gh" + "p_" + drawn(12),
    "s" + "k-your-api-key-goes-in-here-please-and-thanks-1",
    "task-" + drawn(40),
    "s" + "k-learn-contrib-estimator-checks-for-version-2-0",
    "api_key = 'your-api-key-goes-here-0123'",
    "api_key = os.environ['API_KEY']",
    "secret_name = 'projects/my-project/secrets/database'",
    "token = 'text-embedding-ada-002-preview'",
    "tokenizer = 'bert-base-uncased-finetuned-mrpc-v1'",
    "key = 'model.layers.0.self_attn.q_proj.weight'",
    "access_key = '" + "x" * 40 + "'",
    "password = 'ThisIsNotARandomPasswordAtAll'",
    "sha256 = '" + drawn(64, HEX) + "'",
    "commit: " + drawn(40, HEX) + "\n",
    "if token == '" + drawn(32) + "': pass",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----",
    'if line.startswith("-----BEGIN PRIVATE KEY-----"): end = "-----END PRIVATE KEY-----"',
    pem("CERTIFICATE"),
    pem("PUBLIC KEY"),
    "eyJhbGciOiJ.not.a.token",
    b64({"typ": "none"}) + "." + b64({"sub": "1"}) + "." + drawn(43),
    "=" * 80,
]


def iban(country, length):
    account = drawn(length - 4, string.digits)
    number = int("".join(str(int(c, 36)) for c in f"{account}{country}00"))
    return f"{country}{98 - number % 97:02d}{account}"


def luhn(head, length):
    for last in "0123456789":
        number = head + drawn(length - len(head) - 1, string.digits) + "0"
        number = number[:-1] + last
        if sum_of_luhn(number) % 10 == 0:
            return number
    return luhn(head, length)


def sum_of_luhn(number):
    total = 0
    for place, digit in enumerate(reversed(number)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value // 10 + value % 10
    return total


GERMAN, BRITISH = iban("DE", 22), iban("GB", 22)
VISA, AMEX = luhn("4539", 16), luhn("37", 15)
PERSONAL_TEXTS = [
    ("email", "Author: Jane Doe <{}>", "jane.doe@uni-bonn.de"),
    ("email", "mailto:{}?subject=x", "j+lists@mail.gov.uk"),
    ("email", "# {}.", "x_1%y@sub.domain.io"),
    ("email", "({})", "Grobgeld@gmail.com"),
    ("phone", "Tel. {}", "+49 228 73 4567"),
    ("phone", "call {} now", "+1 (212) 736-5000"),
    ("phone", "phone='{}'", "+33142685300"),
    ("phone", "tel:{}", "+442079460018"),
    ("phone", "Voice: {}\n", "(301) 373-9601"),
    ("phone", "Jane Doe, {}", "415-736-2671"),
    ("phone", "fax {}", "212.736.5001"),
    ("ip-address", "connect to {} now", "93.184.216.34"),
    ("ip-address", "http://{}:8080/", "74.125.127.100"),
    ("ip-address", "host = '{}'", "5.9.21.30"),
    ("ip-address", "{} - - [01/Jan]", "66.35.250.150"),
    ("iban", "IBAN: {}\n", GERMAN),
    ("iban", "pay to {}.", " ".join(BRITISH[at : at + 4] for at in range(0, 22, 4))),
    ("card", "{} exp 10/27", " ".join(VISA[at : at + 4] for at in range(0, 16, 4))),
    ("card", "{}", "-".join(VISA[at : at + 4] for at in range(0, 16, 4))),
    ("card", "visa card {}", VISA),
    ("card", "amex: {}", f"{AMEX[:4]} {AMEX[4:10]} {AMEX[10:]}"),
]
NO_PERSONAL = [
    "git@github.com:a/b.git", "noreply@github.com", "x@example.com", "1+y@users.noreply.github.com",
    "y = a@b.to(device)", "z = w@self.data", "logo@2x.png", "a @ b.T", "@pytest.mark",
    "user@localhost",
    "https://me:pw@host.com/x", "ssh://root@host.com/", "npm i pkg@1.2.io2", "a@-b.com", "x@y..com",
    "+0000", "x+12345678", "1e+10 2", "+1.23456789", "+ 1 2 3 4 5 6 7 8", "a = b +1234567890",
    "(512) 256", "sizes 256-512-1024", "200.300.4000", "+1 415 555 2671", "(415) 555-0132",
    "2020-01-01-1000", "id 300-400-50000", "+999 12 34 56 78", "1-800-300-400-5000x",
    "127.0.0.1", "10.1.2.3", "192.168.1.1", "172.16.0.9", "0.0.0.0", "255.255.255.0", "224.0.0.251",
    "169.254.1.1", "203.0.113.7", "8.8.8.8", "1.2.3.4", "numpy==1.26.40.200", "version 3.24.35.222",
    "v4.4.63.30", "upgrade V8 to 4.4.63.30", "ObjectIdentifier('2.5.29.32')", "1.3.6.1.4.1",
    "1.3.101.112",
    "Chrome/96.0.46.110", "256.1.1.1", "93.184.216.034", "93.184.216.0/24",
    "M3.5 2.1 93.18.21.34 1.5 2",
    GERMAN[:-1] + str((int(GERMAN[-1]) + 1) % 10), GERMAN[:-1], "X" + GERMAN, GERMAN + "0",
    "ZZ" + GERMAN[2:], "DE44 5001", "AB12CD34EF56",
    VISA, "x = " + VISA, "0." + VISA, VISA + ".5", "card " + "4242" * 4, "visa 4111111111111111",
    "card " + VISA[:-1] + str((int(VISA[-1]) + 1) % 10), "card " + luhn("9", 16),
    "5230 522E " + " ".join(luhn("53", 16)[at : at + 4] for at in range(0, 16, 4)) + " 52DE",
    "4611686018427387904",
]  # fmt: skip


def kinds_in(text, scanners):
    raw = text.encode()
    return [(raw[one.start : one.end].decode(), one.kind) for one in findings(raw, scanners)]


@pytest.mark.parametrize(
    ("scanners", "texts"),
    [(SECRETS, SECRET_TEXTS), (PERSONAL, PERSONAL_TEXTS)],
    ids=["secrets", "personal"],
)
def test_each_kind_is_found_at_its_place_and_nothing_else(scanners, texts):
    missed = []
    for kind, around, value in texts:
        for text in (around.format(value), f"caf\u00e9 \U0001f600\n{around.format(value)}\n\n"):
            if kinds_in(text, scanners) != [(value, kind)]:
                missed.append((kind, around, kinds_in(text, scanners)))
    assert missed == []


@pytest.mark.parametrize(
    ("scanners", "texts"),
    [(SECRETS, NO_SECRETS), (PERSONAL, NO_PERSONAL)],
    ids=["secrets", "personal"],
)
def test_look_alikes_are_left_alone(scanners, texts):
    assert [(text, found) for text in texts if (found := kinds_in(text, scanners))] == []


PIECES = st.sampled_from(
    [*SECRET_TEXTS, *PERSONAL_TEXTS, *((None, "{}", text) for text in (*NO_SECRETS, *NO_PERSONAL))]
).map(lambda one: one[1].format(one[2]))
JOINTS = st.sampled_from(["", " ", "\n", "'", "=", "\u00e9", "-", ".", "@", "eyJ", "\x00"])
MIXED = st.lists(st.one_of(PIECES, JOINTS, st.text(max_size=5)), max_size=8).map("".join)


def hinted(text, scanners):
    """As the step looks: scanners whose hints a whole column is asked for."""
    column = pa.array([text])
    return [
        one for one in scanners
        if all(pc.match_substring_regex(column, hint)[0].as_py() for hint in one.hints)
    ]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(MIXED)
def test_hints_lose_nothing_and_masks_change_nothing_else(text):
    raw = text.encode()
    for scanners in (SECRETS, PERSONAL):
        found = findings(raw, scanners)
        assert findings(raw, hinted(text, scanners)) == found
        assert all(a.end <= b.start for a, b in pairwise(found))
        clean, kept, at = masked(raw, found), [], 0
        for one in found:
            kept.append(raw[at : one.start])
            at = one.end
        for piece in (*kept, raw[at:]):
            assert clean.startswith(piece)
            clean = re.sub(rb"^<[A-Z_]+>", b"", clean[len(piece) :])
        assert clean == b""


def test_overlaps_go_to_the_earlier_scanner():
    def at(*spans):
        return Scanner((), lambda text: iter([Finding(a, b, kind) for a, b, kind in spans]))

    first = at((4, 6, "a"), (10, 20, "a"))
    second = at((0, 2, "b"), (5, 8, "b"), (6, 8, "b"), (7, 9, "b"), (19, 22, "b"), (20, 21, "b"))
    spans = [(one.start, one.end) for one in findings(b"x" * 30, (first, second))]
    assert spans == [(0, 2), (4, 6), (6, 8), (10, 20), (20, 21)]
    assert masked(b"0123456789", [Finding(1, 3, "email"), Finding(3, 5, "jwt")]) == (
        b"0<EMAIL><SECRET>56789"
    )


@settings(max_examples=100, deadline=None)
@given(st.text("0123456789", min_size=1, max_size=24), st.sampled_from(["DE", "FR", "XK", "a?"]))
def test_check_digits_are_those_of_the_standards(digits, country):
    assert passes_luhn(digits.encode()) == (sum_of_luhn(digits) % 10 == 0)
    text = country + digits
    turned = text[4:] + text[:4]
    value = "".join(str(int(c, 36)) if c.isalnum() else "?" for c in turned)
    assert is_iban(text.encode()) == ("?" not in value and int(value) % 97 == 1)


def patterns(module):
    for value in vars(module).values():
        if isinstance(value, re.Pattern):
            yield value
        elif isinstance(value, dict | tuple):
            inner = value.values() if isinstance(value, dict) else value
            yield from (one for one in inner if isinstance(one, re.Pattern))


def repeats(parsed, inside=False):
    """Whether a repeat stands in another: what makes a search more than linear."""
    for name, argument in parsed:
        is_repeat = str(name).endswith("REPEAT") and argument[0] != argument[1] and argument[1] > 1
        if is_repeat and inside:
            yield argument
        yield from repeats_below(argument, inside or is_repeat)


def repeats_below(argument, inside):
    if isinstance(argument, re._parser.SubPattern):
        yield from repeats(argument, inside)
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from repeats_below(part, inside)


@pytest.mark.parametrize("module", [secret_patterns, personal_patterns, generated])
def test_no_pattern_has_a_repeat_within_a_repeat(module):
    found = list(patterns(module))
    assert len(found) > 4
    for pattern in found:
        assert list(repeats(re._parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))) == []
    assert list(repeats(re._parser.parse("(a+b)*"))), "the check itself sees one"


HOSTILE = {
    name: unit * (400_000 // len(unit))
    for name, unit in {
        "prefixes": "gh" + "p_", "keys": "-----BEGIN PRIVATE KEY-----", "tokens": "eyJ", "ats": "@",
        "domains": "a.", "locals": "a@a.", "mails": "a@b.c-", "digits": "4", "groups": "4539 ",
        "octets": "1.", "plus": "+1", "phones": "+1 2", "quotes": "'a", "equals": "key=",
        "quote": '"',
        "names": "secret_", "value": "api_key='a1B", "jwt": "eyJhbGciOiJIUzI1NiJ9.", "iban": "DE44",
        "spaced": "DE44 ", "sk": "s" + "k-", "aws": "AK" + "IA", "slashes": "://",
        "ends": "-----END ",
        "sg": "S" + "G.a1", "blank": " ", "nul": "\x00", "wide": "\u4f60@",
    }.items()
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_searched_in_linear_time(name):
    """400 KB each: anything worse than linear takes minutes, which the timeout of tests ends."""
    raw = HOSTILE[name].encode()
    for scanner in (*SECRETS, *PERSONAL):
        for one in scanner.find(raw):
            assert 0 <= one.start < one.end <= len(raw)


class Counted(bytes):
    """Says how many bytes were copied or searched out of it."""

    def __getitem__(self, key):
        taken = super().__getitem__(key)
        self.steps = getattr(self, "steps", 0) + (len(taken) if isinstance(taken, bytes) else 1)
        return taken

    def find(self, *args):
        at = super().find(*args)
        last = min(len(self), args[2]) if at < 0 else at
        self.steps = getattr(self, "steps", 0) + max(0, last - args[1])
        return at


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_twice_the_text_is_twice_the_work(name):
    work = []
    for length in (20_000, 40_000):
        raw = Counted(HOSTILE[name].encode()[:length])
        for scanner in (*SECRETS, *PERSONAL):
            list(scanner.find(raw))
        work.append(getattr(raw, "steps", 0))
    assert work[1] <= 2 * work[0] + 40_000

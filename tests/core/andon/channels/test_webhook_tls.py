"""TLS of a webhook is checked against the name in its URL, whatever address that leads to."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from albor_core.andon.channels import webhook
from albor_core.andon.channels.delivery_error import DeliveryError
from albor_core.andon.channels.webhook import post_json


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of hooks.test, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hooks.test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("hooks.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "hooks.pem"
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem = key.private_bytes(serialization.Encoding.PEM, *form)
    path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return path


class Server:
    """Answers one request over TLS; `names` are those that clients asked for."""

    def __init__(self, certificate: Path) -> None:
        self.names: list[str | None] = []
        self.got = b""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.sni_callback = lambda sock, name, context: self.names.append(name)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        sock, _ = self._server.accept()
        try:
            with sock, self._context.wrap_socket(sock, server_side=True) as tls:
                self.got = tls.recv(65536)
                tls.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        except OSError:
            pass  # the client let go
        finally:
            self._server.close()


@pytest.fixture
def server(certificate: Path) -> Iterator[Server]:
    made = Server(certificate)
    yield made
    made.thread.join()


def post(host: str, server: Server, trusted: Path | None) -> int:
    tls = ssl.create_default_context(cafile=None if trusted is None else str(trusted))
    url = f"https://{host}:{server.port}/s3cretpathpart"
    answer = post_json(url, b"{}", allow_private=True, resolver=lambda *_: ["127.0.0.1"], tls=tls)
    return answer.status


def test_the_name_of_the_url_is_asked_for_and_checked(server, certificate):
    assert post("hooks.test", server, certificate) == 204
    assert server.names == ["hooks.test"]
    assert server.got.startswith(b"POST /s3cretpathpart HTTP/1.1\r\nHost: hooks.test:")


@pytest.mark.parametrize(("host", "is_trusted"), [("other.test", True), ("hooks.test", False)])
def test_a_certificate_of_another_name_or_of_a_stranger_gets_nothing(
    host, is_trusted, server, certificate
):
    with pytest.raises(DeliveryError, match="certificate is not valid") as caught:
        post(host, server, certificate if is_trusted else None)
    server.thread.join()
    assert server.got == b""
    assert host not in caught.value.why


def test_certificates_are_checked_unless_a_test_says_otherwise(monkeypatch, server):
    monkeypatch.setattr(webhook, "resolve", lambda *_: pytest.fail("another resolver was given"))
    url = f"https://hooks.test:{server.port}/s3cretpathpart"
    with pytest.raises(DeliveryError, match="certificate is not valid"):
        post_json(url, b"{}", allow_private=True, resolver=lambda *_: ["127.0.0.1"])

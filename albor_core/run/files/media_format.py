"""What pictures and sound are by their first bytes; nothing is decoded, so no bomb goes off."""

from __future__ import annotations

import struct

PNG = b"\x89PNG\r\n\x1a\n"
_HEAD = 1 << 16


def picture_format(content: bytes) -> tuple[str, int, int]:
    """(format, width, height) by the first bytes; ("", 0, 0) for none that is known. An SVG has no
    size of its own.
    """
    try:
        if content.startswith(PNG) and content[12:16] == b"IHDR":
            return ("png", *struct.unpack_from(">II", content, 16))
        if content[:6] in (b"GIF87a", b"GIF89a"):
            return ("gif", *struct.unpack_from("<HH", content, 6))
        if content[:2] == b"BM":
            width, height = struct.unpack_from("<ii", content, 18)
            return "bmp", abs(width), abs(height)
        if content[:3] == b"\xff\xd8\xff":
            return ("jpeg", *_size_of_jpeg(content))
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            return ("webp", *_size_of_webp(content))
    except struct.error:  # it ends inside its head
        return "", 0, 0
    head = content[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    return ("svg", 0, 0) if head[:1] == b"<" and b"<svg" in content[:_HEAD] else ("", 0, 0)


def _size_of_jpeg(content: bytes) -> tuple[int, int]:
    at = 2
    while at + 4 <= len(content) and content[at] == 0xFF:
        mark = content[at + 1]
        if mark == 0xFF:  # filling
            at += 1
        elif 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", content, at + 5)
            return width, height
        else:
            at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    raise struct.error("no frame")


def _size_of_webp(content: bytes) -> tuple[int, int]:
    kind = content[12:16]
    if kind == b"VP8X":
        wide, high = content[24:27], content[27:30]
        return 1 + int.from_bytes(wide, "little"), 1 + int.from_bytes(high, "little")
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", content, 21)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", content, 26)
        return width & 0x3FFF, height & 0x3FFF
    raise struct.error("no frame")


def sound_format(content: bytes) -> str:
    """The format by the first bytes; "" for none that is known."""
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        return "wav"
    if content[:4] in (b"fLaC", b"OggS"):
        return "flac" if content[:4] == b"fLaC" else "ogg"
    is_frame = len(content) > 1 and content[0] == 0xFF and content[1] & 0xE0 == 0xE0
    return "mp3" if content[:3] == b"ID3" or is_frame else ""

"""The licence of a repository by the text of its LICENSE or COPYING file, as an SPDX identifier.

Short fingerprints, all of which must be in the text: other words give None, not a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_BYTES = 1 << 18
_NAMES = re.compile(r"(un)?licen[cs]e([-._].*)?|copying([-._].*)?", re.IGNORECASE)
_WHOLE_MIT = "permission is hereby granted free of charge to any person obtaining a copy"
_BSD = "redistribution and use in source and binary forms with or without modification"

# Identifier, phrases that are all there, phrases of which none is; in lower case, without commas.
_PRINTS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("AGPL-3.0-only", ("gnu affero general public license version 3 19 november 2007",), ()),
    ("LGPL-3.0-only", ("gnu lesser general public license version 3 29 june 2007",), ()),
    ("LGPL-2.1-only", ("gnu lesser general public license version 2.1 february 1999",), ()),
    ("GPL-3.0-only", ("gnu general public license version 3 29 june 2007",), ()),
    ("GPL-2.0-only", ("gnu general public license version 2 june 1991",), ()),
    ("MPL-2.0", ("mozilla public license version 2.0", "secondary license"), ()),
    (
        "Apache-2.0",
        ("apache license version 2.0 january 2004", "grant of patent license"),
        ("llvm exceptions",),
    ),
    ("EPL-2.0", ("eclipse public license - v 2.0", "contributor"), ()),
    ("BSL-1.0", ("boost software license - version 1.0",), ()),
    ("Unlicense", ("free and unencumbered software released into the public domain",), ()),
    ("CC0-1.0", ("cc0 1.0 universal", "statement of purpose"), ()),
    (
        "PSF-2.0",
        ("python software foundation license version 2", "psf is making python available"),
        ("cnri", "beopen"),
    ),
    (
        "Python-2.0",
        ("python software foundation license version 2", "beopen.com license agreement", "cnri"),
        (),
    ),
    (
        "Zlib",
        (
            "this software is provided 'as-is' without any express or implied warranty",
            "altered source versions must be plainly marked",
        ),
        (),
    ),
    (
        "ISC",
        (
            "permission to use copy modify and/or distribute this software",
            "copyright notice and this permission notice appear in all copies",
        ),
        (),
    ),
    (
        "0BSD",
        ("permission to use copy modify and/or distribute this software for any purpose",),
        ("copyright notice and this permission notice appear",),
    ),
    (
        "BSD-3-Clause",
        (_BSD, "to endorse or promote products derived from this software"),
        ("all advertising materials",),
    ),
    ("BSD-2-Clause", (_BSD, "in binary form must reproduce the above copyright"), ("endorse",)),
    (
        "MIT",
        (_WHOLE_MIT, "the above copyright notice and this permission notice shall be included"),
        ("shall not be used in advertising", "clear bsd"),
    ),
    ("MIT-0", (_WHOLE_MIT,), ("this permission notice shall be included",)),
)


def is_licence_file(name: str) -> bool:
    """Whether a file in the root of a repository has the name of a licence."""
    return _NAMES.fullmatch(name) is not None


def identify(text: bytes) -> str | None:
    """The SPDX expression of a licence's text: one identifier, or those of all licences in it
    joined by AND. None for what is none of those known.

    A GNU licence's own text says nothing of later versions: it is the `-only` one.
    """
    flat = " ".join(re.sub(r"[\"`*#<>,]", " ", text.decode("utf-8", "replace").lower()).split())
    found = [
        name
        for name, needed, without in _PRINTS
        if all(one in flat for one in needed) and not any(one in flat for one in without)
    ]
    return " AND ".join(sorted(found)) or None


def licence_of(texts: Iterable[bytes]) -> str | None:
    """Of a repository with these licence files; several are joined by AND, since whoever keeps to
    each of them keeps to any. None where one is unknown.
    """
    found = {identify(text) for text in texts}
    if None in found:
        return None
    return (
        " AND ".join(sorted({name for one in found if one for name in one.split(" AND ")})) or None
    )

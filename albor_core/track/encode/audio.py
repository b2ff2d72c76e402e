"""Sound as files: encoded bytes as they are, arrays as 16-bit WAV."""

from __future__ import annotations

import io
import os
import sys
import wave
from typing import Any

from albor_core.run.files.media_format import sound_format
from albor_core.track.encode.arrays import all_finite, as_array, is_array
from albor_core.track.encode.images import read_bounded
from albor_core.track.encode.medium import Limits, Medium, RefusedError

_MAX_CHANNELS, _MAX_RATE = 8, 1 << 20


def audio_of(value: Any, sample_rate: int | None, limits: Limits) -> Medium:
    """Sound of any of the forms that `Run.audio` takes. Raises RefusedError, OSError."""
    if isinstance(value, bytes | bytearray | memoryview):
        return encoded(bytes(value))
    if isinstance(value, str | os.PathLike):
        return encoded(read_bounded(value, limits.max_bytes))
    if not is_array(value):
        raise RefusedError("media_unreadable", f"{type(value).__name__!r} is not sound")
    if type(sample_rate) is not int or not 0 < sample_rate <= _MAX_RATE:
        raise RefusedError(
            "media_unreadable", f"sample_rate {sample_rate!r} of an array of samples"
        )
    return _of_array(as_array(value), sample_rate, limits)


def encoded(content: bytes) -> Medium:
    """Sound that is encoded already. Raises RefusedError."""
    form = sound_format(content)
    if not form:
        raise RefusedError("media_unreadable", "not WAV, FLAC, Ogg or MP3")
    return Medium(form, content)


def _of_array(array: Any, rate: int, limits: Limits) -> Medium:
    numpy = sys.modules["numpy"]
    if array.ndim == 2 and array.shape[0] <= _MAX_CHANNELS < array.shape[1]:
        array = array.T  # channels first, as torchaudio has them
    channels = array.shape[1] if array.ndim == 2 else 1
    if array.ndim not in (1, 2) or not 0 < channels <= _MAX_CHANNELS or not array.size:
        shape = " x ".join(map(str, array.shape)) or "no dimension"
        raise RefusedError("media_unreadable", f"an array of {shape} is not sound")
    if array.size * 2 > limits.max_bytes:
        raise RefusedError.too_large(array.size * 2, limits.max_bytes)
    if array.dtype.kind == "f":
        if not all_finite(array):
            raise RefusedError("media_not_finite", "NaN or Inf among its samples")
        array = numpy.rint(numpy.clip(array.astype(numpy.float64), -1, 1) * 32767)
    elif array.dtype != numpy.int16:
        raise RefusedError("media_unreadable", f"samples of {array.dtype}, not of floats or int16")
    samples = numpy.ascontiguousarray(array.astype("<i2"))
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(samples.tobytes())
    meta = {"rate": rate, "channels": channels, "seconds": round(len(samples) / rate, 3)}
    return Medium("wav", file.getvalue(), meta)

"""Where a publisher's tags come from: an FLV file, or synthetic media described as `synthetic[:field=value,...]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rtmp_relay.frames import Tag
from rtmp_relay.synthetic_media import Synthetic
from rtmp_spark.codec import flv
from rtmp_spark.codec.errors import UserError

_READ_BYTES = 1 << 16
_REMEDY = "Write it like synthetic:seconds=10,fps=30."


def file_tags(path: Path) -> Iterator[Tag]:
    """Yield the tags of an FLV file, reading it piece by piece."""
    with path.open("rb") as file:
        data = file.read(_READ_BYTES)
        _, _, position = flv.parse_header(data)
        while True:
            tags, position = flv.take_tags(data, position)
            for tag in tags:
                yield Tag(tag.type_id, tag.timestamp, tag.payload)
            more = file.read(max(_READ_BYTES, len(data) - position))
            if not more:
                return
            data = data[position:] + more
            position = 0


def source_tags(source: str) -> Iterator[Tag]:
    """Return the tags of a source as the command line names it. Raises UserError for an invalid setting."""
    name, _, settings = source.partition(":")
    if name != "synthetic":
        return file_tags(Path(source))
    values: dict[str, float | int | bool] = {}
    for setting in filter(None, settings.split(",")):
        key, _, value = setting.partition("=")
        default = getattr(Synthetic, key, None)
        if default is None or not isinstance(default, (bool, int, float)):
            raise UserError(f"Synthetic media has no setting {key!r}.", _REMEDY)
        try:
            values[key] = (
                value.lower() in ("", "1", "true", "yes") if isinstance(default, bool) else type(default)(value)
            )
        except ValueError:
            raise UserError(f"Invalid value {value!r} for {key}.", _REMEDY) from None
    return Synthetic(**values).tags()  # type: ignore[arg-type]

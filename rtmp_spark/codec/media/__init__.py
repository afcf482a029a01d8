"""What audio and video messages hold: tags, and in them what codecs write.

`tag.parse_tag` reads the header of one message body, `reader.TagReader` follows the tags of one direction. Below them
are the codecs: those in NAL units (nal.py), other video (video.py) and audio (audio.py), with what their configuration
records tell (record.py). Nothing here decodes a sample.
"""

"""Audio and video messages: tags, and the codec data in them.

`tag.parse_tag` reads the header of one message body, `reader.TagReader` follows the tags of one direction. codecs.py is
the table of all codecs. Their data is read by nal.py (H.264, H.265, H.266), video.py (other video) and audio.py;
record.py has what their configuration records share. Nothing here decodes a sample.
"""

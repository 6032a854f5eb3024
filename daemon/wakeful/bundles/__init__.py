"""Sessions as files: one bundle holds a session's records, blobs, scratch files and spec,
every byte covered by a digest.

`format` has the values and limits, `writing` and `reading` the stream, `save` and `load` bring sessions out of a log
and into one; `retention` says which sessions and outputs are due for the archive. All of it blocks (off the loop),
decides nothing about sessions and wakes none: who may load what, and what becomes of it, is for the calls.
"""

"""Bundles: one file holds a session's records, blobs, scratch files and spec, every byte covered by a digest.

`format` has the values and limits. `writer` and `reader` have the stream. `save` and `load` move sessions out of a log
and into one. `retention_rules` and `old_outputs` choose the sessions and outputs that are due for the archive. All of
it blocks, so it is called off the loop. Nothing here changes a session's state, wakes it or checks permissions: only
the calls of the API do that.
"""

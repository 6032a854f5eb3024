"""wakeful keeps sessions at rest until something they depend on changes.

The version below is the only copy: the package's metadata,
`wakeful --version` and the socket's greeting read it from here.
"""

__version__ = "0.1.0"

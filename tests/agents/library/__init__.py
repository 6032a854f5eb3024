"""The same requests by pydantic-ai and the providers' own clients, used plainly: what our encoders are compared with.

Owned here: our values as the library's, its models behind a transport that records, and its answers as ours. Nothing at run
time reads this folder; it takes seconds to import.
"""

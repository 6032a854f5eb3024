"""The same requests made by pydantic-ai and the providers' own clients, with which the tests compare our encoders.

This folder converts our values to the library's, runs its models with a transport that records, and converts its
answers to ours. The daemon does not import this folder. The import takes seconds.
"""

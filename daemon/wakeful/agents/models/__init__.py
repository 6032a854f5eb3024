"""Models of the providers: a conversation in our values in, an answer in our values out."""

"""YAML text in, frozen values of the core out, or problems with file:line:column.

`load` reads a folder, `yaml_text` the language, `models` the keys, `translate` the words people read.
Nothing here decides anything about sessions: cycles and double writers are judged by the core.
"""

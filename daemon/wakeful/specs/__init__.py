"""Parses YAML into frozen values of the core, or into problems with file:line:column.

`folder_reading` reads a folder, `yaml_text` parses YAML, `models` defines the keys, `spec_builder` builds the values,
and `model_errors` explains errors. This package does not judge sessions as a group: the core checks for cycles and
double writers.
"""

"""Parses YAML into frozen values of the core, or into problems with file:line:column.

`folder_reading` reads a folder, `yaml_text` parses YAML, `models` defines the keys, `translate` words the errors. This
package does not judge sessions as a group: the core checks for cycles and double writers.
"""

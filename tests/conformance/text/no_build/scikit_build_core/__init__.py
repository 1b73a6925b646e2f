"""Stands in for a source package's build system while pip downloads it: nothing is built.

pip asks for a package's metadata before it keeps the file, and would fetch the whole build system
for that. The package is only read as an archive, so a name and a version are enough.
"""

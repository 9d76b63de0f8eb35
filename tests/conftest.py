"""Puts this folder on the path, so that tests in sub-folders can import the helpers beside this file."""

"""Folders are written without their pictures, but where a test asks for `drawn`."""

from sketches import drawn, sketched  # noqa: F401

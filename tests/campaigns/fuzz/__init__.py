"""Malformed files by the hundred thousand: every reader of files ends in success or in the library's own error."""

"""What a curator published: values, each with its mechanism, and the file they are kept in."""

from noisewise.release.release import Release

__all__ = ["Release"]

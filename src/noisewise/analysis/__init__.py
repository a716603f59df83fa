"""The file a person writes: release, model and settings in words, read and checked."""

from noisewise.analysis.analysis import Analysis, DesignFile, plan_of, starter
from noisewise.analysis.toml import FileError

__all__ = ["Analysis", "DesignFile", "FileError", "plan_of", "starter"]

"""The version of the installed distribution, which holds all three packages."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("vpo-gym")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"

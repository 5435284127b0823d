"""The version of the package that is installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("cfg_fsm")
except PackageNotFoundError:  # pragma: no cover - only in a source tree that was never installed
    __version__ = "0+unknown"

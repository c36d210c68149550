"""The installed version of this package."""

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """As pip knows it, or `source` where the package runs from a tree without an installation."""
    try:
        return version("simforcing")
    except PackageNotFoundError:
        return "source"

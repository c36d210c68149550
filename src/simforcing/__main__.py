"""`python -m simforcing` is the `simforcing` command (torchrun needs a module)."""

from simforcing.cli import main

if __name__ == "__main__":
    main()

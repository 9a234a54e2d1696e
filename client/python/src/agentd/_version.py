"""The version, as in ``pyproject.toml``. Owns nothing else."""

VERSION = "0.1.0"

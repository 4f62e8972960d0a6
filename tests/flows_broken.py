"""A module of a workflow that cannot be imported."""

import that_is_not_there  # type: ignore[import-not-found]  # noqa: F401

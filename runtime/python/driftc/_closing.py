"""Objects that hold memory of the library until they are closed."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

_Closed = TypeVar("_Closed", bound="Closing")


class Closing:
    """Base of classes with a method ``close``. The end of a ``with`` block and the end of the object's life call it."""

    def close(self) -> None:
        """Frees the memory. A second call does nothing."""
        raise NotImplementedError

    def __enter__(self: _Closed) -> _Closed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

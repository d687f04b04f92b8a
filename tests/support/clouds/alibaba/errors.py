"""An answer that is an error."""


class Refusal(Exception):  # noqa: N818  it is an answer
    """Status, code and message as Alibaba Cloud writes them."""

    def __init__(self, status: int, code: str, message: str) -> None:
        """Keep them."""
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


def missing(name: str) -> Refusal:
    """A parameter that the call needs."""
    return Refusal(400, f"Missing{name}", f"The input parameter {name} that is mandatory is not supplied.")

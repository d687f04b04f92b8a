"""What Tencent Cloud takes as the value of a tag (cloud.tencent.com/document/product/651/13354)."""

import re

from gpuwatch.clouds import CloudError

_LENGTH = 255
_SIGNS = re.compile(r"[\w +\-=.:/@()\[\],;><]*")


def check_tag_value(key: str, value: str) -> None:
    """Hold a text of the settings to it; `key` names the text.

    Raises:
        CloudError: no tag can have that value.

    """
    if len(value) > _LENGTH or not _SIGNS.fullmatch(value):
        raise CloudError(
            f"{key}: {value!r} cannot be the value of a tag on Tencent Cloud, which takes up to {_LENGTH} letters, "
            "digits, blanks and + - = . : / @ ( ) [ ] , ; > < _",
            code="TagValue",
        )

"""Characters that change the direction of the text around them, as marks that can be seen (Unicode, Bidi_Control): with
them, a text or a label looks like another one, and changes what stands beside it."""

import re

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def marked(value: object) -> object:
    """A text with its marks, such as `[U+202E]`; for `finalize` of Jinja. Other values are unchanged, and markup, which
    the value of a form's field is after the filter `e`."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _BIDI.sub(lambda match: f"[U+{ord(match[0]):04X}]", value)

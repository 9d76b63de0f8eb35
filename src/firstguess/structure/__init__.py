"""From an `nn.Module` to a description, where it can be read; the list of what could not, by path.

`fg.read` is `reader.read`.
"""

from firstguess.structure.reader import read
from firstguess.structure.result import Part, Structure, Unread, Variances

__all__ = ["Part", "Structure", "Unread", "Variances", "read"]

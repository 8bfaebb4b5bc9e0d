"""The ids under which Ringback asks the client of a legacy session a question.

Such an id names the call and the question, and is used once. So an answer may be sent again, also to another process: it
answers the same question, or none.
"""

from typing import Final

QUESTION_ID_PREFIX: Final = "elicit:"

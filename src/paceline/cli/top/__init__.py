"""`paceline top`: the live view in a terminal. Only `command` is imported by others, and only when it is asked for."""

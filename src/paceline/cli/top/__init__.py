"""`paceline top`: the live view in a terminal. Only the command `top` imports it, and only when it runs."""

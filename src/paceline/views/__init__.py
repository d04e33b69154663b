"""The read model: frozen values for people. The API, the command line and `top` only print or serialise them."""

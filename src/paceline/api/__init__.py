"""The HTTP API and the page: everything the command line does, over HTTP. No decision is made here."""

"""The gates of a scope: rules that can refuse a ticket. One module per kind of gate."""

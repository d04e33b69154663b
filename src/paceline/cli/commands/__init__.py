"""One module per command. Its function `command` declares name, options and help, and hands over to the code."""

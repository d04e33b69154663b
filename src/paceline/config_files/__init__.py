"""Files that people write: reading them, checking them, and every mistake with its line and a fix."""

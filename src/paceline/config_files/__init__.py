"""Files that people write: read whole, checked whole, every mistake with its line and a fix."""

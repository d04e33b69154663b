"""Parsers of what agents print: lines, JSON, screens, clock times and reset times."""

"""Benchmarks. Every number is a ratio to a baseline in the same run, because machines are shared and noisy."""

"""Measurements, always as ratios against a baseline in the same run: machines are shared and noisy."""

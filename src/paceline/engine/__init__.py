"""Campaigns that finish by themselves: plan files, the pass, the life of an attempt."""

"""Clusters that provide slots."""

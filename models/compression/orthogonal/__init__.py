"""Orthogonal matrices taken apart: into reflectors, packed rotations, planes and their angles."""
